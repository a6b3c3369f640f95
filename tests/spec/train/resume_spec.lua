-- resume_spec.lua: runs that stop and go on: flags, signals, other meshes and process counts, what is refused.
local core = require "meshlua.core"
local helper = require "spec.helper"
local manifest = require "meshlua.checkpoint.manifest"
local mpi = require "dist.mpi"
local saver = require "meshlua.train.saver"
local shell = helper.shell
local read, within = helper.read, helper.within

local words = {}
for i = 1, 3000 do words[i] = ("line %d of many "):format(i % 97) end
local TEXT = table.concat(words)
local SMALL = "--layers=1 --width=16 --heads=2 --seq=8 --batch=8 --sample=0 --steps=10"

local function remove(path) core.disk_task {{"remove", path}}:wait() end

local text = os.tmpname()
setup(function()
  local file <close> = assert(io.open(text, "wb"))
  file:write(TEXT)
end)
teardown(function() os.remove(text) end)

--- Runs models/train.lua with these options; what it wrote and its exit code.
local function train(options, program)
  return shell(("%s models/train.lua %s --data=%s %s"):format(program or '"$MESHLUA"', SMALL, text, options))
end

local function runs_well(...)
  local out, err, code = train(...)
  assert.equal(0, code, err)
  return out, err
end

local function refuses(code, wanted, ...)
  local _, err, actual = train(...)
  assert.equal(code, actual, err)
  assert.truthy(err:find(wanted, 1, true), err)
  assert.falsy(err:find("traceback", 1, true), err)
end

local function steps(out)
  local list = {}
  for _, name in ipairs(core.list_folder(saver.folder(out)) or {}) do
    list[#list + 1] = manifest.step(name)
  end
  return list
end

local function losses(out)
  local list = {}
  for step, loss in read(out .. "/metrics.jsonl"):gmatch '{"step":(%d+),"loss":([^,]+)' do
    list[tonumber(step)] = tonumber(loss)
  end
  return list
end

--- Same bits at the end?
local function same(a, b, step)
  for _, tree in ipairs {"model", "optimizer", "rngs"} do
    local path = ("/%s/%s.safetensors"):format(manifest.folder(step or 10), tree)
    if read(saver.folder(a) .. path) ~= read(saver.folder(b) .. path) then return false end
  end
  return true
end

describe("a run's checkpoints", function()
  it("are made each so many steps and at the end, and are as many as said", function()
    within(function(out)
      runs_well("--save-every=3 --keep=2 --out=" .. out)
      assert.same({9, 10}, steps(out))
      local _, err, code = train("--out=" .. out)
      assert.equal(2, code)
      assert.truthy(err:find("the folder holds a run (config.json, config.lua, metrics.jsonl of 10 steps, "
        .. "result.json, 2 checkpoints)", 1, true), err)
      runs_well("--overwrite --out=" .. out)
      assert.same({10}, steps(out))
    end)
  end)

  it("are gone on from: the newest, a step, with the same bits", function()
    within(function(out)
      runs_well("--save-every=4 --dropout=0.1 --out=" .. out .. "/a")
      runs_well("--save-every=4 --dropout=0.1 --out=" .. out .. "/b")
      for _, resume in ipairs(helper.watched and {"=4", "=auto"} or {"=4", "=8", "", "=auto"}) do
        if resume == "=auto" then remove(saver.folder(out .. "/b") .. "/step-00000010") end
        local said = runs_well(("--save-every=4 --dropout=0.1 --resume%s --out=%s/b"):format(resume, out))
        local step = resume:match "%d" or (resume == "" and "10" or "8")
        assert.truthy(said:find("going on behind step " .. step .. " of 10", 1, true), said)
        assert.truthy(same(out .. "/a", out .. "/b"))
        assert.same(losses(out .. "/a"), losses(out .. "/b"))
      end
    end)
  end)

  it("go on on other meshes, with other rules", function()
    within(function(out)
      runs_well("--save-every=4 --out=" .. out .. "/a")
      local wanted = losses(out .. "/a")
      local layouts = {"--mesh=data:4,model:2 --rules=fsdp_tp", "--mesh=none --rules=dp",
        "--mesh=data:8 --rules=fsdp", "--mesh=model:2 --rules=tp", "--mesh=data:2,model:2 --rules=tp_sp"}
      for i = 1, helper.watched and 2 or #layouts do
        local layout = layouts[i]
        shell(("mkdir %s/b && cp -r %s/a/. %s/b"):format(out, out, out))
        runs_well(("--resume=4 %s --out=%s/b"):format(layout, out))
        for step, loss in ipairs(losses(out .. "/b")) do
          assert.truthy(math.abs(loss - wanted[step]) < 1e-4, layout)
        end
        remove(out .. "/b")
      end
    end)
  end)

  it("go on without the pipeline that made them, and the other way round", function()
    within(function(out)
      local layouts = {"--mesh=stage:2,model:2 --rules=pp_tp", "--mesh=data:2 --rules=dp --layers=scan"}
      for i, layout in ipairs(layouts) do
        local into, more = ("--out=%s/%d"):format(out, i), " --layers=2 --microbatches=4 --save-every=5 "
        runs_well(layout .. more .. into)
        local wanted = losses(("%s/%d"):format(out, i))
        runs_well(layouts[3 - i] .. more .. "--resume=5 " .. into)
        for step, loss in ipairs(losses(("%s/%d"):format(out, i))) do
          assert.truthy(math.abs(loss - wanted[step]) < 1e-4, layout)
        end
      end
    end)
  end)

  mpi.it("go on in other numbers of processes, with the same bits", function()
    within(function(out)
      runs_well("--save-every=4 --dropout=0.1 --out=" .. out .. "/a")
      local before
      for _, split in ipairs(helper.watched and {{2, 4}, {1, 8}} or {{2, 4}, {4, 2}, {1, 8}}) do
        local program = mpi.program(split[1], split[2])
        local options = ("--save-every=4 --dropout=0.1 --out=%s/b"):format(out)
        if before then
          runs_well(options .. " --resume=4", program)
        else
          runs_well(options, program)
        end
        before = split
        assert.truthy(same(out .. "/a", out .. "/b"), program)
        assert.truthy(same(out .. "/a", out .. "/b", 8), program)
        assert.same(losses(out .. "/a"), losses(out .. "/b"))
      end
    end)
  end)
end)

describe("a signal", function()
  --- Sends it once the run has made some steps; what it says, and its exit code.
  local function stopped(out, signal, options, program)
    return shell(([[%s models/train.lua %s --data=%s --steps=1000000 --out=%s %s >/dev/null &
      pid=$!
      while ! test -s %s/metrics.jsonl; do sleep 0.05; done
      sleep 0.3
      kill -%s $pid
      wait $pid]]):format(program or '"$MESHLUA"', SMALL, text, out, options or "", out, signal))
  end

  it("saves before it stops the run", function()
    for signal, code in pairs {USR1 = 75, TERM = 75, INT = 130} do
      within(function(out)
        local _, err, actual = stopped(out, signal)
        assert.equal(code, actual, err)
        local step = tonumber(err:match "stopped by %S+ after step (%d+); %-%-resume goes on from step %1")
        assert.same({step}, steps(out))
        assert.equal(step, #losses(out))
        _, err, actual = train(([[--steps=1000000 --resume --out=%s >/dev/null &
          pid=$!
          until [ "$(wc -l <%s/metrics.jsonl)" -gt %d ] || ! kill -0 $pid; do sleep 0.05; done
          kill -USR1 $pid
          wait $pid]]):format(out, out, step))
        assert.equal(75, actual, err)
        assert.truthy(#losses(out) > step)
      end)
    end
  end)

  it("during a save neither begins another nor drops that one", function()
    within(function(out)
      local _, err, code = stopped(out, "USR1", "--save-every=1")
      assert.equal(75, code, err)
      local list = steps(out)
      local done, saved = err:match "after step (%d+); %-%-resume goes on from step (%d+)"
      assert.equal(list[#list], tonumber(saved))
      assert.truthy(tonumber(done) - tonumber(saved) <= 1, err)
      assert.falsy(table.concat(core.list_folder(saver.folder(out)), " "):find "%.step%-")
    end)
  end)

  mpi.it("saves in all processes", function()
    for signal, code in pairs {TERM = 75, INT = 130} do
      within(function(out)
        local _, err, actual = stopped(out, signal, "", mpi.program(2, 4))
        assert.equal(code, actual, err)
        assert.truthy(err:find "stopped by", err)
        assert.equal(1, #steps(out))
      end)
    end
  end)
end)

describe("--resume", function()
  it("is refused where there is nothing, or another run", function()
    within(function(out)
      local to = " --out=" .. out
      refuses(2, "there is no checkpoint in " .. out .. "/checkpoints; --resume=auto", "--resume" .. to)
      refuses(2, "--resume needs a folder: --out=...", "--resume")
      refuses(2, "--save-every needs a folder", "--save-every=3")
      refuses(2, "--save-every=3h: expected steps as in 100, or minutes as in 5m", "--save-every=3h" .. to)
      refuses(2, "--keep=1: the least is 2", "--keep=1 --out=" .. out)
      assert.equal(nil, (core.path_kind(out)))
      runs_well("--resume=auto --out=" .. out)
      refuses(2, "--resume=foo: expected auto or a step", "--resume=foo --out=" .. out)
      refuses(3, "there is no checkpoint of step 3; there are 10", "--resume=3 --out=" .. out)
      refuses(2, "is of another run: seed: 0 in the checkpoint, 1 now; config.lr: 0.003 in the checkpoint, "
        .. "0.5 now", "--resume --seed=1 --lr=0.5 --out=" .. out)
      refuses(2, "leave --overwrite away", "--resume --overwrite --out=" .. out)
      local other = helper.file(TEXT:gsub("many", "some"))
      local _, err, code = shell(('"$MESHLUA" models/train.lua %s --data=%s --resume --out=%s'):format(SMALL,
        other, out))
      assert.equal(2, code, err)
      assert.truthy(err:find("data.train.inputs: ", 1, true), err)
      assert.same({10}, steps(out))
    end)
  end)

  it("names what is broken, and passes it over where it is auto", function()
    within(function(out)
      runs_well("--save-every=4 --out=" .. out)
      local file <close> = assert(io.open(saver.folder(out) .. "/step-00000010/optimizer.safetensors", "r+b"))
      file:seek("end", -5)
      file:write "!"
      file:close()
      refuses(3, "optimizer.safetensors: ", "--resume --out=" .. out)
      local said, err = runs_well("--resume=auto --out=" .. out)
      assert.truthy(said:find("going on behind step 8", 1, true), said)
      assert.truthy(err:find("bytes have changed; the checkpoint before it is taken", 1, true), err)
      assert.same({4, 8, 10}, steps(out))
    end)
  end)
end)

describe("--from", function()
  it("begins with the weights of a checkpoint, alone", function()
    within(function(out)
      runs_well("--out=" .. out .. "/a")
      local from = saver.folder(out .. "/a") .. "/step-00000010"
      runs_well(("--lr=0 --weight-decay=0 --steps=2 --from=%s --out=%s/b"):format(from, out))
      local model = "/model.safetensors"
      assert.truthy(read(from .. model) == read(saver.folder(out .. "/b") .. "/step-00000002" .. model))
      refuses(2, "--from: " .. from .. ": it is of another model: model.", "--width=32 --from=" .. from)
      local file = from .. model
      runs_well(("--lr=0 --weight-decay=0 --steps=1 --from=%s --out=%s/c"):format(file, out))
      assert.truthy(read(from .. model) == read(saver.folder(out .. "/c") .. "/step-00000001" .. model))
    end)
  end)
end)

describe("a folder", function()
  it("is one run's at a time, and must have room", function()
    within(function(out)
      local start = ('"$MESHLUA" models/train.lua %s --data=%s --out=%s'):format(SMALL, text, out)
      local _, err, code = shell(([[%s --steps=1000000 >/dev/null 2>&1 &
        pid=$!
        while ! test -s %s/metrics.jsonl; do sleep 0.05; done
        %s --overwrite
        code=$?
        kill -KILL $pid
        exit $code]]):format(start, out, start))
      assert.equal(3, code, err)
      assert.truthy(err:find("another run writes here (process ", 1, true), err)
    end)
  end)

  it("that cannot be written is an error, or a warning, as asked", function()
    if rawget(_G, "SANITIZE") then helper.pending "a sanitizer must be loaded first" end
    local recorder = helper.program():match "^(.*)/[^/]*$" .. "/fault_recorder.so"
    for _, case in ipairs {{"stop", 3, "train: "}, {"warn", 0, "train: warning: "}} do
      within(function(out)
        local _, err, code = train(("--save-every=4 --save-failure=%s --out=%s"):format(case[1], out),
          ('RECORD_ROOT=%s/checkpoints/.step-00000004 RECORD_FAIL=5 RECORD_ERRNO=28 LD_PRELOAD=%s "$MESHLUA"')
          :format(out, recorder))
        assert.equal(case[2], code, err)
        assert.truthy(err:find(case[3] .. out .. "/checkpoints/.step-00000004", 1, true), err)
        assert.truthy(err:find("No space left on device", 1, true), err)
        assert.same(case[2] == 0 and {8, 10} or {}, steps(out))
      end)
    end
  end)
end)
