-- files_spec.lua: many processes write one file and read it, each its part.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

local shell = helper.shell

describe("tensors in files", function()
  for _, split in ipairs(mpi.SPLITS) do
    mpi.it(("are the same bytes, and read back: %d x %d"):format(split[1], split[2]), function()
      local folder = os.tmpname()
      os.remove(folder)
      shell("mkdir " .. folder)
      mpi.same({split}, "tests/dist/scripts/files.lua " .. folder)
      local left = shell("ls -A " .. folder .. " " .. folder .. "/hf")
      shell("rm -r " .. folder)
      assert.is_nil(left:find "part", left)
    end)
  end

  mpi.it("of a published model's names are the same bytes", function()
    local folder = os.tmpname()
    os.remove(folder)
    shell("mkdir " .. folder)
    mpi.same({{2, 4}}, "tests/dist/scripts/pretrained.lua " .. folder)
    shell("rm -r " .. folder)
  end)
end)
