-- images.lua: a folder with IDX files named as Fashion-MNIST's, of few images. They go after the test.
local helper = require "spec.helper"
local ml = require "meshlua"

local SIDE = 28

--- n images, each of one grey that its label decides, to train and to test with; `labels` of them have one.
---@param n integer
---@param labels integer? default n
---@return string folder
return function(n, labels)
  labels = labels or n
  local pixels, classes = {}, {}
  for i = 1, n do pixels[i] = string.char(i % 10 * 25):rep(SIDE * SIDE) end
  for i = 1, labels do classes[i] = string.char(i % 10) end
  local folder = os.tmpname()
  os.remove(folder)
  assert(ml.core.make_folder(folder))
  local contents = {
    ["images-idx3"] = string.pack(">I2BBI4I4I4", 0, 8, 3, n, SIDE, SIDE) .. table.concat(pixels),
    ["labels-idx1"] = string.pack(">I2BBI4", 0, 8, 1, labels) .. table.concat(classes),
  }
  for _, part in ipairs {"train", "t10k"} do
    for name, bytes in pairs(contents) do
      local path = ("%s/%s-%s-ubyte.gz"):format(folder, part, name)
      local file <close> = assert(io.open(path, "wb"))
      file:write(bytes)
      helper.files[#helper.files + 1] = path
    end
  end
  helper.files[#helper.files + 1] = folder
  return folder
end
