-- data_spec.lua: many processes read the batches that one would, each its part of them, and hold and compute each
-- its part of a step; the files of a run are written once.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local ml = require "meshlua"

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

  -- Under fsdp_tp what a step holds is split over both axes but for biases and norms. The devices of one place
  -- along data, which compute different parts of the same rows, need them all: they are in one process, or the
  -- axis model is 1.
  local text = ("any text "):rep(1500)
  local PATTERN = "rank %d+: held (%d+) temporaries (%d+) flops (%d+) read (%d+)"
  local whole = {} -- what one process has, by the sizes of the mesh
  -- Figures of what is tested elsewhere, and slow where a sanitizer watches.
  local cases = {{2, 4, "4 2"}, {4, 2, "4 2"}, {8, 1, "8 1"}}
  for _, case in ipairs(helper.watched and {} or cases) do
    local n, sizes = case[1], case[3]
    mpi.it(("have a share of bytes, work and data each: %d x %d"):format(n, case[2]), function()
      local words = ("tests/dist/scripts/shares.lua %s %s"):format(sizes, helper.file(text))
      whole[sizes] = whole[sizes] or {mpi.one(8, words):match(PATTERN)}
      local all, ranks = whole[sizes], 0
      local out, err, code = mpi.run(n, case[2], words)
      assert.equal(0, code, err)
      for held, temporaries, flops, read in out:gmatch(PATTERN) do
        ranks = ranks + 1
        assert.near(1, n * held / all[1], 0.05)
        assert.near(1, n * (held + temporaries) / (all[1] + all[2]), 0.05)
        assert.near(1, n * flops / all[3], 0.05)
        assert.equal(1, n * read / all[4])
      end
      assert.equal(n, ranks)
    end)
  end

  --- A run of a recipe in two processes.
  local function train(options)
    return mpi.run(2, 2, ("models/train.lua --mesh=data:4 --rules=fsdp --layers=1 --width=16 --heads=2 " ..
      "--seq=8 --batch=8 --steps=4 --sample=8 --data=%s %s"):format(helper.file(text), options))
  end

  mpi.it("write the files of a run once", function()
    local folder = os.tmpname()
    os.remove(folder)
    for _, part in ipairs {"/config.json", "/metrics.jsonl", "/result.json", "/sample.txt", ""} do
      helper.files[#helper.files + 1] = folder .. part
    end
    local out, err, code = train("--eval-batches=all --out=" .. folder)
    assert.equal(0, code, err)
    local steps = {}
    for line in io.lines(folder .. "/metrics.jsonl") do
      steps[#steps + 1] = line:match '^{"step":(%d),.*}$'
    end
    assert.equal("1234", table.concat(steps))
    local result <close> = assert(io.open(folder .. "/result.json"))
    assert.truthy(result:read("a"):find '"count_table":.*"data_bytes":%d+,.*"validation_loss":[%d.]+}\n$')
    assert.equal(1, select(2, out:gsub("validation loss", "")))
  end)

  mpi.it("end together where the disk is full", function()
    local before = ml.core.clock()
    local _, err, code = train "--metrics=/dev/full"
    assert.equal(3, code, err)
    assert.truthy(err:find("train: step 1: /dev/full: No space left on device", 1, true), err)
    assert.truthy(ml.core.clock() - before < 10)
  end)
end)
