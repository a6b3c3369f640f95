-- data_spec.lua: many processes read the batches that one would, each its part of them.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

describe("many processes", function()
  mpi.it("read the batches of one, each what its devices hold", function()
    local ids, pixels, labels = {}, {}, {}
    for i = 0, 999 do ids[i + 1] = string.pack("<I2", i * 7919 % 50000) end
    for i = 0, 20 * 8 * 4 - 1 do pixels[i + 1] = string.char(i * 31 % 251) end
    for i = 0, 19 do labels[i + 1] = string.char(i) end
    mpi.same(mpi.SPLITS, ("tests/dist/scripts/batches.lua %s %s %s"):format(
      helper.file(table.concat(ids), ".bin"),
      helper.file(string.pack(">I2BBI4I4I4", 0, 8, 3, 20, 8, 4) .. table.concat(pixels)),
      helper.file(string.pack(">I2BBI4", 0, 8, 1, 20) .. table.concat(labels))))
  end)
end)
