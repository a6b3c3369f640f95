-- program_spec.lua: models/train.lua and recipes as programs: what they print, write and refuse.
local core = require "meshlua.core"
local helper = require "spec.helper"
local shell, file = helper.shell, helper.file
local read, folder = helper.read, helper.folder

-- A text with an order to learn, and a model that takes a millisecond a step.
local words = {}
for i = 1, 3000 do words[i] = ("line %d of many "):format(i % 97) end
local TEXT = table.concat(words)
local SMALL = " --layers=1 --width=16 --heads=2 --seq=8 --batch=8 --sample=40 --steps=4"

--- Runs models/train.lua on the text, small, with these further options.
local function train(options, script)
  return shell(('"$MESHLUA" %s %s --data=%s %s'):format(script or "models/train.lua", SMALL, file(TEXT),
    options or ""))
end

--- The lines of a metrics file, each of which must be one whole JSON object with its keys in order.
local function metrics(path)
  local rows, text = {}, read(path)
  assert.truthy(text == "" or text:sub(-1) == "\n", "the last line is cut")
  for line in text:gmatch "[^\n]+" do
    local row = {}
    row.step, row.loss, row.grad_norm, row.lr, row.ms, row.tokens_per_s = line:match(
      '^{"step":(%d+),"loss":([%d.e+-]+),"grad_norm":([%d.e+-]+),"lr":([%d.e+-]+),"ms":([%d.e+-]+),'
      .. '"tokens_per_s":([%d.e+-]+),"wait_ms":[%d.e+-]+,"busy":[01][%d.e-]*,"memory_peak":%d+,'
      .. '"process_peak":%d+}$')
    if not row.step then row.step = line:match '^{"step":(%d+),"loss":null,.*}$' end
    assert.equal(#rows + 1, math.tointeger(tonumber(row.step)), line)
    for key, text_of in pairs(row) do row[key] = tonumber(text_of) end
    rows[#rows + 1] = row
  end
  return rows
end

--- Asserts exit code and a piece of the message.
local function refuses(code, wanted, out, err, actual)
  assert.equal(code, actual, err)
  assert.truthy(err:find(wanted, 1, true), err)
  assert.falsy(err:find "stack traceback", err)
  return out
end

describe("train.lua", function()
  it("trains on a mesh, and says how", function()
    local out, err, code = train "--mesh=data:4,model:2 --log-every=2 --eval-batches=all"
    assert.same({"", 0}, {err, code})
    assert.truthy(out:find "^gpt: %d+ parameters; mesh data:4,model:2, rules tp; seed 0\n")
    for _, step in ipairs {1, 2, 4} do
      local wanted = ("\nstep %d/4  loss %%d.%%d%%d%%d%%d  grad norm [%%d.]+  lr %%d.%%d%%de[+-]%%d+  "
        .. "[%%d.]+ ms  %%d+ tok/s  peak %%d+ MB  eta %%d+:%%d%%d\n"):format(step)
      assert.truthy(out:find(wanted), out)
    end
    assert.falsy(out:find "step 3/4")
    assert.truthy(out:find "\nvalidation loss %d%.%d%d%d%d nats per byte")
    assert.truthy(out:find "\nbest count table %d%.%d%d%d%d nats per byte %(%d bytes of context%)")
    assert.truthy(out:find "\nsample at temperature 0.5:\n")
    assert.truthy(out:find "words of 4 letters or more occur in the training text")
    assert.falsy(out:find "[\r\27]", "no terminal, no escape sequences")
  end)

  it("writes a line for each step, and the files of --out", function()
    local path, out = file(""), folder()
    local options = "--mesh=none --eval-batches=all --metrics=%s --out=%s/deep"
    local text, _, code = train(options:format(path, out))
    assert.equal(0, code)
    local rows = metrics(path)
    assert.equal(4, #rows)
    assert.truthy(rows[1].loss > 0 and rows[1].lr == 0 and rows[2].lr > 0 and rows[1].ms > 0)
    assert.near(8 * 8 / (rows[3].ms / 1e3), rows[3].tokens_per_s, 1e-3 * rows[3].tokens_per_s)
    assert.truthy(read(out .. "/deep/config.json"):find('"config":{"batch":8,', 1, true))
    assert.truthy(read(out .. "/deep/result.json"):find '"count_table":%d.*"validation_loss":%d')
    assert.truthy(text:find(read(out .. "/deep/sample.txt"), 1, true))
    local other = folder()
    train("--mesh=none --out=" .. other)
    assert.equal(4, #metrics(other .. "/metrics.jsonl"))
  end)

  it("sends rows to commands, which may die, and to TensorBoard's files", function()
    local path, out = file "", folder()
    local _, err, code = train(("--mesh=none --out=%s --tensorboard --metrics='|cat >%s'"):format(out, path))
    assert.same({"", 0}, {err, code})
    assert.equal(read(out .. "/metrics.jsonl"), read(path))
    local list = core.list_folder(out .. "/tensorboard")
    assert.equal(1, #list)
    local written = read(out .. "/tensorboard/" .. list[1])
    for _, word in ipairs {"brain.Event:2", "config.layers | 1", "grad_norm", "validation_loss", "sample"} do
      assert.truthy(written:find(word, 1, true), word)
    end
    assert.falsy(written:find("seconds", 1, true))
    refuses(2, "--tensorboard=" .. out .. "/tensorboard: the folder holds 1 file of an earlier run",
      train(("--mesh=none --tensorboard=%s/tensorboard"):format(out)))
    refuses(2, "--tensorboard needs a folder", train "--mesh=none --tensorboard")
    assert.equal(0, select(3, train(("--mesh=none --overwrite --out=%s --tensorboard"):format(out))))
    assert.equal(1, #core.list_folder(out .. "/tensorboard"))

    local dying = "--metrics='|read line; sleep 0.1; exit 5'"
    refuses(3, "--metrics='|read line; sleep 0.1; exit 5': it has ended with code 5 after ",
      train("--mesh=none --steps=2000 " .. dying))
    refuses(0, "exit 5': it has ended with code 5 after ",
      train(("--mesh=none --overwrite --steps=2000 --out=%s %s"):format(out, dying)))
    assert.equal(2000, #metrics(out .. "/metrics.jsonl"))
    refuses(2, "expected a command behind the |", train "--mesh=none --metrics='| '")
    refuses(4, "the loss is nan",
      train(("--mesh=none --warmup=0 --lr=1e38 --metrics='|cat >%s'"):format(path)))
    assert.equal(2, #metrics(path))
  end)

  it("gives the same on every mesh, and from the same seed; another from another", function()
    local losses = {}
    for i, options in ipairs {"--mesh=none", "--mesh=none", "--mesh=data:2,model:2 --rules=fsdp_tp",
        "--mesh=none --seed=1"} do
      local path = file("")
      assert.equal(0, select(3, train(options .. " --metrics=" .. path)))
      losses[i] = metrics(path)
    end
    for step = 1, 4 do
      assert.equal(losses[1][step].loss, losses[2][step].loss)
      assert.near(1, losses[3][step].loss / losses[1][step].loss, 1e-5)
      assert.not_equal(losses[1][step].loss, losses[4][step].loss)
    end
  end)

  it("lists its options", function()
    local out, _, code = shell '"$MESHLUA" models/train.lua --help'
    assert.equal(0, code)
    for _, line in ipairs {"--mesh=data:4,model:2 ", "--rules=tp ",
        "dp, fsdp, fsdp_pp, fsdp_tp, pp, pp_tp, tp", "--steps=", "--lr=", "--data=... ", "The recipe gpt:"} do
      assert.truthy(out:find(line, 1, true), line)
    end
    assert.truthy(out:find("usage: meshlua models/train.lua [", 1, true))
    out = shell '"$MESHLUA" models/train.lua --recipe=mlp --help'
    assert.truthy(out:find("The recipe mlp:", 1, true) and out:find("images in a step", 1, true))
  end)

  it("says with --profile how busy threads and devices were, and at the end what took how long", function()
    local path = file ""
    local out, err, code = train("--log-every=1 --mesh=data:2 --rules=dp --profile=" .. path)
    assert.same({"", 0}, {err, code})
    assert.truthy(out:find "\nstep 4/4 [^\n]+threads busy [%d%% ]+  for each device %d+%% %d+%%\n")
    assert.truthy(out:find "\nop +line +calls +total ms +share +of limit\n")
    assert.truthy(read(path):find '"name":"matmul"')
    local _, message, failed = train "--profile=/nonexistent/file"
    assert.equal(3, failed)
    assert.truthy(message:find("profile: cannot write /nonexistent/file", 1, true))
  end)

  it("refuses unknown and ill-typed options", function()
    refuses(2, "unknown option --step; did you mean --steps?", train "--step=5")
    refuses(2, "unknown option --log-evry; did you mean --log_every?", train "--log-evry=5")
    refuses(2, "--steps=many: expected a whole number", train "--steps=many")
    refuses(2, "--steps=2.5: expected a whole number", train "--steps=2.5")
    refuses(2, "--lr=fast: expected a number", train "--lr=fast")
    refuses(2, "--batch=0: the least is 1", train "--batch=0")
    refuses(2, "--steps needs a value", train "--steps")
    refuses(2, "--out needs a value", train "--out=")
    refuses(2, "--lr=1e999: expected a number", train "--lr=1e999")
    refuses(2, "'5': options are written --key=value", train "5")
    refuses(2, "'-v'", train "-v")
  end)

  it("refuses values outside a recipe's ranges, each by its name", function()
    for name, wrong in pairs {layers = "0: the least is 1", seq = "-3: the least is 1",
        lr = "-1: the least is 0",
        dropout = "2: the most is 1", beta2 = "1: it must be below 1", temperature = "0: it must be above 0",
        min_lr = "-3: the least is 0", sample = "-4: the least is 0",
        dtype = "flot32: expected float32, float64, bfloat16, float16; did you mean float32?"} do
      refuses(2, ("--%s=%s"):format(name, wrong), train(("--%s=%s"):format(name, wrong:match "^[^:]+")))
    end
    for recipe, wrong in pairs {mlp = "--layers=0: the least is 1", convnet = "--blocks=5: the most is 4"} do
      local option = wrong:match "^[^:]+"
      refuses(2, wrong, shell(('"$MESHLUA" models/train.lua --recipe=%s %s'):format(recipe, option)))
    end
  end)

  it("keeps what an earlier run left, unless --overwrite is given", function()
    local out, path = folder(), file ""
    assert.equal(0, select(3, train("--mesh=none --steps=3 --out=" .. out)))
    local before = {}
    local function each(fn)
      for _, name in ipairs {"config.json", "metrics.jsonl", "result.json", "sample.txt"} do
        fn(name, read(out .. "/" .. name))
      end
    end
    each(function(name, text) before[name] = text end)
    local function kept()
      each(function(name, text) assert.equal(before[name], text, name) end)
    end
    refuses(2, ("--out=%s: the folder holds a run (config.json, config.lua, metrics.jsonl of 3 steps, "
      .. "result.json, sample.txt, 1 checkpoint); take another folder, or --overwrite to replace it")
      :format(out),
      train("--mesh=none --out=" .. out))
    kept()
    -- What is wrong is found before anything is replaced, whatever it is.
    local other = " --overwrite --out=" .. out
    for _, wrong in ipairs {"--steps=0", "--rules=tpp", "--mesh=data:3", "--mesh=none --heads=3",
        "--mesh=none --data=/nonexistent/text", "--mesh=none --vocab=49", "--precision=f31",
        "--microbatches=3", "--recipe=gtp", "--stpes=5"} do
      assert.not_equal(0, select(3, train(wrong .. other)), wrong)
      kept()
    end
    assert.equal(0, select(3, train("--mesh=none --sample=0 --steps=2" .. other)))
    assert.equal(2, #metrics(out .. "/metrics.jsonl"))
    assert.falsy(io.open(out .. "/sample.txt"), "the sample of the run before")

    assert.equal(0, select(3, train("--mesh=none --metrics=" .. path)))
    local lines = read(path)
    refuses(2, ("--metrics=%s: the file holds 4 lines; take another file, or --overwrite"):format(path),
      train("--mesh=none --metrics=" .. path))
    assert.equal(lines, read(path))
    assert.equal(0, select(3, train("--mesh=none --overwrite --metrics=" .. path)))
  end)

  helper.figures("says mesh axes that split nothing, before the first step", function()
    local function warning(mesh)
      local _, err, code = train(mesh)
      assert.equal(0, code, err)
      return err
    end
    assert.equal("train: warning: --mesh=dta:4: nothing is split over the axis dta: its 4 devices do the "
      .. "same work; the rule set tp names data, model; did you mean data?\n", warning "--mesh=dta:4")
    local both = warning "--mesh=x:2,modle:2 --rules=fsdp"
    assert.truthy(both:find("over the axis x: its 2", 1, true), both)
    assert.truthy(both:find("over the axis modle: its 2 devices do the same work; the rule set fsdp names "
      .. "data, model; did you mean model?", 1, true), both)
    for _, mesh in ipairs {"--mesh=data:2,model:2 --rules=fsdp", "--mesh=model:2,dta:1", "--mesh=none"} do
      assert.equal("", warning(mesh))
    end
    -- An axis that exists in the mesh, but not in these rules.
    local _, err = shell '"$MESHLUA" models/mlp.lua --rules=dp --mesh=data:2,model:2 --steps=1'
    assert.truthy(err:find("over the axis model: its 2 devices do the same work; the rule set dp names data",
      1, true), err)
  end)

  it("refuses meshes, rules and recipes that are none", function()
    for _, mesh in ipairs {"data", "data:", "data:0", "data:-1", "data:2,", "data:2,data:4", "4,2",
        "data:2;model:2", "", "data:99999999999999999999"} do
      refuses(2, ("--mesh=%s: expected axes and sizes"):format(mesh), train(("'--mesh=%s'"):format(mesh)))
    end
    refuses(2, "--rules=ftdp: no such rule set; did you mean fsdp?", train "--rules=ftdp")
    refuses(2, "--schedule=1f1b is of a pipeline: --mesh needs an axis stage",
      train "--schedule=1f1b --mesh=data:2")
    refuses(2, "1 layer for 2 stages", train "--rules=pp --mesh=stage:2")
    refuses(2, "--bits: a pipeline adds up microbatches in their order", train(
      "--rules=pp --mesh=stage:2 --layers=2 --bits=mesh"))
    refuses(2, "there is no such recipe", shell '"$MESHLUA" models/train.lua --recipe=gtp')
    refuses(2, "No such file", shell '"$MESHLUA" models/train.lua --recipe=./gtp.lua')
    local none = file("return 5", ".lua")
    refuses(2, "returns no recipe", shell('"$MESHLUA" models/train.lua --recipe=' .. none))
    refuses(2, "--batch=8: the batch", train "--mesh=data:3")
  end)

  it("says what a recipe lacks, before anything is made", function()
    local whole = {'name = "x"', "config = {batch = 4, steps = 2}", "build = print", "loss = print",
      "schedule = print", "optimizer = print", "data = print"}
    local function fault(wanted, list)
      local path = file("return {" .. table.concat(list, ", ") .. "}", ".lua")
      local command = '"$MESHLUA" models/train.lua --recipe=' .. path
      refuses(2, ("--recipe=%s: %s"):format(path, wanted), shell(command))
    end
    for i, kind in ipairs {"string", "table", "function", "function", "function", "function", "function"} do
      local list = table.move(whole, 1, #whole, 1, {})
      local name = table.remove(list, i):match "^%a+"
      fault(("the recipe lacks %s, a %s; write: %sM.%s"):format(name, kind,
        kind == "function" and "function " or "", name), list)
    end
    local function changed(i, text)
      local list = table.move(whole, 1, #whole, 1, {})
      list[i] = text
      return list
    end
    fault("its config lacks batch, a whole number; write: batch = 16\n", changed(2, "config = {steps = 2}"))
    fault("steps of its config is a number, not a whole number",
      changed(2, "config = {batch = 4, steps = 0.5}"))
    fault("data of the recipe is a string, not a function", changed(7, "data = 'x'"))
    fault("the recipe lacks loss, a function (it has lsos); write: function M.loss(model, inputs, labels, ",
      changed(4, "lsos = print"))
    fault("the recipe lacks evaluate, a function (it has evalute); ",
      changed(7, "data = print, evalute = print"))
    fault("rules of the recipe is a boolean, not a table; write: M.rules = {dp = {{\"batch\", \"data\"}}}\n"
      .. "       the recipe lacks data, a function; write: ", changed(7, "rules = true"))
    fault("help has lrr, which its config lacks; did you mean lr?",
      changed(2, "config = {batch = 4, steps = 2, lr = 1}, help = {lrr = 'rate'}"))
    fault("this is no recipe", {"1"})
  end)

  it("says what is wrong with a recipe's data, before anything is made", function()
    local recipe = [[local gpt = dofile "models/gpt.lua"
return setmetatable({data = function() return %s end}, {__index = gpt})]]
    for data, wanted in pairs {["5"] = "the recipe's data gave a number, not {train =, valid =}",
        ["{train = 5}"] = "the recipe's data gave a number as train, not Records (ml.data)",
        ["{train = {fields = {inputs = 1}}}"] = "the records of train have no labels; they have inputs"} do
      refuses(2, wanted, train("--mesh=none --recipe=" .. file(recipe:format(data), ".lua")))
    end
  end)

  it("finds an installed recipe by its name, anywhere", function()
    for _, name in ipairs(require("meshlua.train.recipe").installed) do
      local command = 'program=$(readlink -f "$MESHLUA") && cd / && "$program" train %s --help'
      local out, err, code = shell(command:format(name))
      assert.same({"", 0}, {err, code})
      assert.truthy(out:find(("\nThe recipe %s:\n"):format(name), 1, true))
    end
  end)

  it("is in each recipe, too", function()
    assert.equal(0, select(3, train("--mesh=none", "models/gpt.lua")))
    refuses(2, "unknown option --recipe", train("--recipe=mlp", "models/gpt.lua"))
  end)

  it("takes devices that it was started with, if they are enough and can run", function()
    assert.equal(0, select(3, train("--mesh=data:2", "--devices=4 models/train.lua")))
    refuses(2, "needs 8 devices, and there are 4", train("--mesh=data:8", "--devices=4 models/train.lua"))
    for _, mesh in ipairs {"data:8", "none"} do
      refuses(2, "the devices are fake", train("--mesh=" .. mesh, "--devices=fake:8 models/train.lua"))
    end
  end)

  it("refuses heads that do not divide the width, at the recipe's line", function()
    local wanted = "^models/gpt%.lua:%d+: %[E_INDIVISIBLE%] MultiHeadAttention: 3 heads do not divide"
    local _, err, code = train "--mesh=none --heads=3"
    assert.equal(1, code)
    assert.truthy(err:find(wanted), err)
  end)

  it("refuses data that is missing, empty, too short, damaged or outside the vocabulary", function()
    local function data(path)
      return shell(('"$MESHLUA" models/train.lua %s --data=%s'):format(SMALL, path))
    end
    refuses(3, "/nonexistent/text: No such file", data "/nonexistent/text")
    refuses(3, "the file is empty", data(file("")))
    refuses(3, "too few", data(file("short")))
    refuses(3, "magic number", data(file(string.pack("<i4i4i4", 20240326, 3, 0) .. ("\0"):rep(1012), ".bin")))
    refuses(2, "of the data is outside the vocabulary of 49, at byte ", train "--vocab=49 --mesh=none")
    refuses(3, "install Debian's package bible-kjv",
      shell('PATH=/nonexistent "$MESHLUA" models/train.lua' .. SMALL))
  end)

  it("says where it cannot write, before it trains", function()
    local path = file("")
    refuses(3, path, train("--mesh=none --out=" .. path))
    refuses(3, path, train(("--mesh=none --out=%s/below"):format(path)))
    refuses(3, "/nonexistent/m.jsonl: No such file", train "--mesh=none --metrics=/nonexistent/m.jsonl")
  end)

  it("stops where the disk is full", function()
    refuses(3, "step 1: /dev/full: No space left on device", train "--mesh=none --metrics=/dev/full")
    -- A disk of one page, in a namespace of its own, which goes with it.
    local disk = folder()
    assert(os.execute("mkdir " .. disk))
    local function on_disk(options, before, after)
      return shell(([[unshare -m sh -c 'mount -t tmpfs -o size=4k none %s && { %s
"$MESHLUA" models/train.lua %s --mesh=none --data=%s %s >/dev/null; code=$?; %s; exit $code; }']]):format(
        disk, before, SMALL, file(TEXT), options, after))
    end
    if os.execute("unshare -m true 2>/dev/null") == nil then return end -- only root may mount
    local path = disk .. "/metrics.jsonl"
    local lines = refuses(3, path .. ": No space left on device",
      on_disk("--steps=99 --metrics=" .. path, ":", "cat " .. path))
    assert.truthy(#metrics(file(lines)) > 10, "whole lines, and none cut")
    local names = refuses(3, " are free; take another disk, or keep fewer",
      on_disk("--out=" .. disk, "head -c 4096 /dev/zero >" .. disk .. "/full", "ls " .. disk))
    assert.equal("checkpoints\nfull\n", names)
  end)

  it("stops on a loss that is not finite, with the step", function()
    local path = file("")
    local out = refuses(4, "step 2: the loss is nan; the run is stopped",
      train("--mesh=none --warmup=0 --lr=1e38 --metrics=" .. path))
    local rows = metrics(path)
    assert.equal(2, #rows)
    assert.truthy(rows[1].loss and not rows[2].loss)
    assert.falsy(out:find "validation")
  end)
end)

describe("Ctrl-C", function()
  it("in the middle of a step leaves the metrics whole; the code is 130", function()
    local path = file("")
    local command = [["$MESHLUA" models/train.lua %s --data=%s --steps=1000000 --metrics=%s & pid=$!
for i in $(seq 2000); do [ "$(wc -l <%s)" -ge 20 ] && break; sleep 0.01; done
kill -INT $pid
(sleep 20; kill -KILL $pid) 2>/dev/null & watch=$!
wait $pid; code=$?
kill $watch 2>/dev/null
exit $code]]
    local _, err, code = shell(command:format(SMALL, file(TEXT), path, path))
    assert.equal(130, code)
    assert.truthy(err:find("%[E_INTERRUPT%] interrupted\n$"), err)
    assert.falsy(err:find("traceback", 1, true), err)
    assert.truthy(#metrics(path) >= 20)
  end)
end)

describe("on a terminal", function()
  --- What the program prints on a terminal of so many columns.
  local function terminal(columns, environment, options)
    local command = 'stty cols %d; %s "$MESHLUA" models/train.lua %s --mesh=none --data=%s %s'
    command = command:format(columns, environment, SMALL, file(TEXT), options or "")
    local out, _, code = shell(("TERM=xterm script -qec '%s' /dev/null"):format(command:gsub("'", "'\\''")))
    assert.equal(0, code, out)
    return (out:gsub("\r\n", "\n"))
  end

  it("a line is drawn again and again, as wide as there is room", function()
    local out = terminal(40, "NO_COLOR=1", "--steps=300 --log-every=1000")
    local drawn = 0
    for text in out:gmatch "\r([^\r\n\27]*)\27%[K" do
      if text ~= "" then
        drawn = drawn + 1
        assert.truthy(utf8.len(text) <= 39, text)
        assert.truthy(text:find "^step +%d+/300  loss %d" or text:find "^evaluation %d+/%d+  eta %d", text)
      end
    end
    assert.truthy(drawn >= 1, out)
    for _, step in ipairs {"\nstep   1/300", "step 300/300"} do
      assert.truthy(out:find(step .. "  loss [^\r\n]*eta"), out)
    end
  end)

  it("has the loss's curve in what is left of the width", function()
    local function drawn(columns, environment)
      local out, text = terminal(columns, environment, "--steps=400 --log-every=1000"), nil
      for line in out:gmatch "\r(step [^\r\n\27]*)" do text = line end
      return text
    end
    local function columns(text) return utf8.len(text:match "eta %d+:%d%d(.*)$") end
    local text = drawn(130, "NO_COLOR=1 LC_ALL=C.UTF-8")
    assert.truthy(text:find "eta %d+:%d%d  .*[▁▂▃▄▅▆▇█][▁▂▃▄▅▆▇█]+$", text)
    assert.truthy(columns(text) <= 44 and utf8.len(text) <= 129, text)
    text = drawn(130, "NO_COLOR=1 LC_ALL=C")
    assert.truthy(text:find "eta %d+:%d%d  .*[_.=+*%%#-]+$", text)
    assert.truthy(drawn(100, "NO_COLOR=1"):find "eta %d+:%d%d$")
  end)

  it("labels are dim unless NO_COLOR is set", function()
    assert.truthy(terminal(100, ""):find("\27[2mloss\27[0m", 1, true))
    assert.falsy(terminal(100, "NO_COLOR=1"):find("\27[2m", 1, true))
  end)

  it("a dumb one gets plain lines", function()
    assert.falsy(terminal(100, "TERM=dumb"):find "\27" or terminal(100, "TERM=dumb"):find "\r")
  end)
end)
