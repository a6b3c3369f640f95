-- transfer_spec.lua: many processes write tensors into one file, and read them: each its part.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

describe("many processes", function()
  --- The part of all bytes that each of them has had to do with.
  local function shares(split, file, mode, layout)
    local words = ("tests/dist/scripts/transfer.lua %s %s %s"):format(file, mode, layout)
    local out, err, code = mpi.run(split[1], split[2], words)
    assert.equal(0, code, err)
    local list = {}
    for part, all in out:gmatch "(%d+) of (%d+)" do list[#list + 1] = part / all end
    assert.equal(split[1], #list, out)
    return list
  end

  local splits = mpi.SPLITS
  for k, split in ipairs(splits) do
    mpi.it(("write and read no more than their parts: %d x %d"):format(split[1], split[2]), function()
      local n = split[1]
      local other = splits[k % #splits + 1]
      for _, layout in ipairs {"columns", "whole"} do
        local file, sum = helper.file("", ".safetensors"), 0
        for _, part in ipairs(shares(split, file, "write", layout)) do
          assert.near(1, n * part, 0.05)
          sum = sum + part
        end
        assert.equal(1, sum)
        if layout ~= "whole" then
          for _, part in ipairs(shares(split, file, "read", layout)) do assert.near(1, n * part, 0.05) end
        end
        for _, part in ipairs(shares(other, file, "read", layout == "whole" and "both" or "rows")) do
          assert.is_true(other[1] * part <= 1.25)
        end
      end
    end)
  end
end)
