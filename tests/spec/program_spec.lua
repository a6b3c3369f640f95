-- program_spec.lua: the command line, errors, exit codes and the REPL.
local helper = require "spec.helper"
local run, shell, file = helper.run, helper.shell, helper.file

local function first_line(text) return text:match "^[^\n]*" end

describe("flags", function()
  it("-e runs code, in order with -l", function()
    local out, err, code = run {"-e", "x = 1", "-lstring", "-e", "print(x, string.rep('a', 2))"}
    assert.same({"1\taa\n", "", 0}, {out, err, code})
  end)

  it("-l puts a library into a global, -l g=mod into another", function()
    local out = run {"-l", "ml=meshlua", "-e", "print(ml.ones({2}):sum():item())"}
    assert.equal("2.0\n", out)
  end)

  it("-v prints both versions", function()
    assert.truthy(run {"-v"}:find "^meshlua %d+%.%d+%.%d+  Lua 5%.4%.%d+\n$")
  end)

  it("-E ignores LUA_INIT, LUA_PATH and MESHLUA_PATH", function()
    local env = [[LUA_INIT='print("init")' LUA_PATH='gone/?.lua' MESHLUA_PATH='mine/?.lua' ]]
    local code = [["$MESHLUA" %s -e 'print(package.path:match "mine", package.path:match "gone")']]
    assert.equal("init\nmine\tgone\n", (shell(env .. code:format "")))
    assert.equal("nil\tnil\n", (shell(env .. code:format "-E")))
  end)

  it("LUA_INIT_5_4 goes before LUA_INIT, and may name a file", function()
    local script = file("print 'from a file'")
    local out = shell(([[LUA_INIT_5_4='@%s' LUA_INIT='print(2)' "$MESHLUA" -e ""]]):format(script))
    assert.equal("from a file\n", out)
  end)

  it("-W turns warnings on", function()
    local _, err = run {"-W", "-e", "warn 'careful'"}
    assert.equal("Lua warning: careful\n", err)
    assert.equal("", select(2, run {"-e", "warn 'careful'"}))
  end)

  it("a script gets its arguments, and arg as stock lua", function()
    local script = file("print(select('#', ...), ..., arg[0], arg[1], arg[-1], arg[-2])", ".lua")
    local out = run {"-e", "", script, "a", "-x"}
    assert.equal(("2\ta\t%s\ta\t\t-e\n"):format(script), (out:gsub("\t%-x\t", "\t", 1)))
  end)

  it("runs what comes in for -, and without a script", function()
    assert.equal("a\n", (run({"-", "a"}, "print(...)")))
    assert.equal("0\n", (run({}, "print(select('#', ...))")))
  end)

  it("-- ends the flags", function()
    local script = file("print(...)")
    assert.equal("-v\n", (run {"--", script, "-v"}))
  end)

  it("unknown flags are refused with the nearest", function()
    local out, err, code = run {"--device=8", "-e", "print(1)"}
    assert.same({"", 2}, {out, code})
    assert.truthy(err:find("did you mean --devices?", 1, true))
    for _, flag in ipairs {"-x", "-ix", "--devices", "--dump=", "-e", "--Help"} do
      assert.equal(2, select(3, run {flag}), flag)
    end
  end)

  it("bad values are wrong use", function()
    for _, n in ipairs {"0", "-1", "x", "fake:", "fake:nothing:8", "8x", "fake:8x", "fake:x8",
      "99999999999"} do
      local _, err, code = run {"--devices=" .. n, "-e", ""}
      assert.equal(2, code, n)
      assert.truthy(err:find("meshlua: [E_MESH] --devices=" .. n, 1, true), err)
    end
    assert.equal(2, select(3, run {"--dump=plam", "-e", ""}))
    assert.equal(3, select(3, run {"--dump=plan:/nonexistent/file", "-e", ""}))
    assert.equal(2, select(3, shell [[MESHLUA_KERNELS=fast "$MESHLUA" -e '']]))
  end)

  it("--devices gives devices", function()
    local count = "print(#require('meshlua').devices())"
    assert.equal("8\n", (run {"--devices=8", "-e", count}))
    assert.equal("3\n", (shell("MESHLUA_DEVICES=3 \"$MESHLUA\" -e \"" .. count .. "\"")))
  end)

  it("--dump prints a stage, to a file where one is named", function()
    local code = "local ml = require 'meshlua' print((ml.ones({2}) + 1):sum():item())"
    local out, err = run {"--dump=simplify", "-e", code}
    assert.equal("4.0\n", out)
    assert.truthy(err:find "^%-%- simplify\n", err)
    local name = file("")
    run {"--dump=plan:" .. name, "-e", code}
    local handle <close> = io.open(name)
    assert.truthy(handle:read "a":find "^%-%- plan\n")
  end)

  it("--dump=source says what a plan's kernels are on a GPU, and each of them once", function()
    local code = [[local ml = require "meshlua"
      local f = ml.jit(function(a, b) return ml.cumsum(a, 1), ml.sin(a), ml.cumsum(b, 1) end)
      f(ml.ones {64}, ml.ones {64})]]
    local _, err, exit = run {"--devices=fake:h200:1", "--dump=source", "-e", code}
    if err:find("meshlua_cuda", 1, true) then helper.pending(err) end
    assert.equal(0, exit, err)
    local first = err:match "\n// step (%d+): cumsum [^\n:]*:%d+\n"
    assert.truthy(first, err)
    assert.truthy(err:find("\n// step %d+: cumsum [^\n]*:%d+: as step " .. first .. "\n"), err)
    assert.truthy(err:find("\n// step %d+: fused sin [^\n:]*:%d+\n"), err)
  end)

  it("--help, --ops, --types, --env and doctor print", function()
    assert.truthy(run {"--help"}:find "^usage: meshlua")
    assert.truthy(run {"--ops"}:find "\nmatmul +x,w +yes +vjp")
    assert.truthy(run {"--types"}:find "^%-%-%-@meta meshlua\n")
    assert.truthy(run {"--env"}:find "\nMESHLUA_DEVICES ")
    local out, _, code = run {"doctor"}
    assert.equal(0, code)
    for _, label in ipairs {"Lua", "kernels", "BLAS", "CUDA driver", "NCCL", "MPI"} do
      assert.truthy(out:find("\n" .. label .. "  ", 1, true), label)
    end
    -- what a run would say, word for word
    local why = select(2, run {"--devices=cuda", "-e", ""}):match "%-%-devices=cuda: .*[^\n]"
    if why then assert.truthy(out:find("\nGPUs  +" .. why:gsub("%p", "%%%0")), out) end
    -- a library that the program itself needs
    local sodium = out:match "\nlibsodium +(/[^\n]*/libsodium%.so[^\n/]*)\n"
    local handle <close> = io.open((assert(sodium, out)))
    assert.truthy(handle, sodium)
    assert.equal(2, select(3, run {"doctor", "me"}))
  end)
end)

describe("verbs", function()
  it("are words; what has a dot, a slash or a dash is a script, and so is a file of another name", function()
    local folder = os.tmpname() .. ".d"
    local function at(name) return folder .. "/" .. name end
    os.execute("mkdir " .. folder)
    for _, name in ipairs {"doctor", "plain", "two.lua", "a-b"} do
      local handle <close> = assert(io.open(at(name), "w"))
      handle:write(("print '%s runs'"):format(name))
    end
    local function says(words)
      return (shell(('m=$(realpath "$MESHLUA"); cd %s; "$m" %s 2>&1'):format(folder, words)))
    end
    assert.truthy(says "doctor":find "\nkernels ")
    for words, name in pairs {["-- doctor"] = "doctor", ["./doctor"] = "doctor", plain = "plain",
      ["two.lua"] = "two.lua", ["a-b"] = "a-b"} do
      assert.equal(name .. " runs\n", says(words))
    end
    assert.truthy(says "two":find("two: neither a verb nor a file; did you mean two.lua?", 1, true))
    os.execute("rm -r " .. folder)
  end)

  it("that are none are refused with the nearest, and wrong arguments with the usage", function()
    for _, case in ipairs {
      {{"trian", "x"}, "meshlua: trian: neither a verb nor a file; did you mean train?"},
      {{"--devices=2", "doctr"}, "did you mean doctor?"},
      {{"doctor", "me"}, "meshlua doctor: 'me' is one argument too many\n       usage: meshlua doctor\n"},
      {{"doctor", "--jsno"}, "meshlua doctor: unknown option --jsno\n"},
      {{"-e", "x", "doctor"}, "doctor: -e and -i are for scripts"},
      {{"train"}, "meshlua train: it needs RECIPE\n       usage: meshlua train RECIPE [--flag=value ...]\n"},
      {{"train", "gtp"}, "meshlua train: gtp: there is no such recipe; did you mean gpt?; installed are "},
      {{"train", "./gtp.lua"}, "meshlua train: ./gtp.lua: No such file or directory\n"},
      {{"help", "resum"}, "did you mean resume?"},
      {{"train", "models/mlp.lua", "--stpes=3"}, "train: unknown option --stpes; did you mean --steps?"},
      {{"train", "models/mlp.lua", "--devices="}, "--devices=: needs a value"},
      {{"help", "mtmul"}, "meshlua help: nothing is known of 'mtmul'; did you mean matmul?"},
    } do
      local out, err, code = run(case[1])
      assert.same({"", 2}, {out, code}, err)
      assert.truthy(err:find(case[2], 1, true), err)
    end
  end)

  it("train tells of the step and the first batch with --explain and --checks, and trains nothing", function()
    local out, err, code = run {"train", "models/gpt.lua", "--devices=8", "--explain", "--checks"}
    assert.same({"", 0}, {err, code})
    assert.truthy(out:find("every figure is of one device", 1, true), out)
    assert.truthy(out:find("\nnothing found: shards, random bits", 1, true), out)
    assert.falsy(out:find("seconds in all", 1, true), out)
  end)

  helper.figures("train --explain tells of devices that are fake, too", function()
    local head = "Mesh(data=64, model=2) of h200; every figure is of one device\n"
    local args = {"train", "models/gpt.lua", "--devices=fake:h200:128", "--mesh=data:64,model:2",
      "--rules=fsdp_tp", "--batch=64", "--precision=f16", "--explain"}
    local out, err, code = run(args)
    assert.same({"", 0, head}, {err, code, out:sub(1, #head)})
    table.insert(args, "--checks") -- which look at values
    out, err, code = run(args)
    assert.same({"", 2}, {out, code})
    assert.truthy(err:find("train: the devices are fake (h200)", 1, true), err)
  end)

  it("train trains a recipe, with what lies beside it and the program's flags behind it", function()
    local out, err, code = run {"train", "models/mlp.lua", "--devices=fake:2", "--steps=1"}
    assert.equal(2, code)
    assert.truthy(err:find("train: the devices are fake (cpu)", 1, true), out .. err)
    out = run {"train", "models/mlp.lua", "--help"}
    assert.truthy(out:find("usage: meshlua train models/mlp.lua [--key=value ...]", 1, true), out)
    assert.falsy(out:find("--recipe", 1, true), out)
    local beside = file("return {name = 'beside'}", ".lua")
    local folder, name = beside:match "^(.*/)(.*)%.lua$"
    local recipe = file(("print(require('%s').name, ...) return 1"):format(name), ".lua")
    out = run {"train", recipe}
    assert.equal(("beside\t%s\n"):format(recipe), out, folder)
  end)

  it("help says what is known of a word, in lines of 80 columns", function()
    for word, wanted in pairs {train = "usage: meshlua train RECIPE", devices = "  --devices=N ",
      ["--timeout"] = "  --timeout=SECONDS\n", E_SHAPE = "dims that do not fit together",
      ["ml.matmul"] = "matmul(x: Tensor, w: Tensor, {preferred_element_type: dtype}) -> Tensor\n",
      Linear = "nn.Linear(", Mesh = "Mesh has ", random = "random has ",
      MESHLUA_DEVICES = "as --devices", ["shard-bytes"] = "convert --shard-bytes=N"} do
      local out, err, code = run {"help", word}
      assert.equal(0, code, err)
      assert.truthy(out:find(wanted, 1, true), out)
    end
    local all = run {"--help"}
    assert.equal(all, (run {"help"}))
    for line in (all .. run {"help", "scan"} .. run {"help", "nn.Linear"}):gmatch "[^\n]+" do
      assert.truthy(#line < 80, line)
    end
  end)
end)

describe("many processes", function()
  it("are told by flags or a launcher, and need something between them", function()
    local _, err, code = run {"--world-size=2", "--rank=0", "--local-rank=0", "-e", ""}
    assert.equal(3, code)
    assert.truthy(err:find("meshlua: rank 0 of 2, local rank 0, by flags (--rank)\n", 1, true), err)
    assert.truthy(err:find("[E_RANKS] 2 processes (--rank)", 1, true), err)
  end)

  it("one process is no more than that", function()
    assert.same({"1\n", "", 0}, {run {"--world-size=1", "--rank=0", "--local-rank=0", "-e", "print(1)"}})
  end)

  it("values that make no sense are wrong use in a flag, and the machine's in a variable", function()
    assert.equal(2, select(3, run {"--world-size=2", "--rank=2", "--local-rank=0", "-e", ""}))
    assert.equal(2, select(3, run {"--rank=0", "-e", ""}))
    local _, err, code = shell [[WORLD_SIZE=2 "$MESHLUA" -e '']]
    assert.equal(3, code)
    assert.truthy(err:find("give WORLD_SIZE, RANK and LOCAL_RANK, or none of them", 1, true), err)
  end)

  it("are no matter to --help, and doctor says them", function()
    assert.equal(0, select(3, shell [[WORLD_SIZE=2 "$MESHLUA" --help]]))
    local out = shell [[WORLD_SIZE=2 RANK=1 LOCAL_RANK=1 "$MESHLUA" doctor]]
    assert.truthy(out:find("rank 1 of 2, local rank 1, by the environment (RANK)", 1, true), out)
  end)

  it("Slurm's variables in part are said, and one process runs", function()
    local out, err, code = shell [[SLURM_NTASKS=4 "$MESHLUA" -e 'print(1)']]
    assert.same({"1\n", 0}, {out, code})
    assert.truthy(err:find("warning: taken as one process: SLURM_NTASKS is set", 1, true), err)
  end)
end)

describe("package.path", function()
  it("begins with the script's folder, ./lua and MESHLUA_PATH", function()
    local script = file("print(package.path)", ".lua")
    local folder = script:match "^(.*/)"
    local out = shell(([[MESHLUA_PATH='a/?.lua;;b/?.lua' "$MESHLUA" %s]]):format(script))
    local wanted = ("%s?.lua;%s?/init.lua;./lua/?.lua;./lua/?/init.lua;a/?.lua;"):format(folder, folder)
    assert.equal(wanted, out:sub(1, #wanted))
    assert.truthy(out:find "/lua/5%.4/%?%.lua;")
    assert.truthy(out:find ";b/%?%.lua\n$")
  end)
end)

describe("errors", function()
  it("name the user's line first, then the user's frames, then the library's", function()
    local script = file([[
local ml = require "meshlua"
local function inner()
  return ml.ones({2, 3}):mean(7)
end
local x = inner()
]], ".lua")
    local out, err, code = run {script}
    assert.same({"", 1}, {out, code})
    assert.equal(script .. ":3: [E", first_line(err):sub(1, #script + 6))
    assert.truthy(first_line(err):find "%[E_%u+%] ")
    local user = err:find(script .. ":5: in main chunk", 1, true)
    local library = err:find("in the library:", 1, true)
    assert.truthy(user)
    assert.truthy(not library or user < library, err)
    assert.falsy(err:find "\27")
  end)

  it("inside a jitted function show its frames", function()
    local script = file([[
local ml = require "meshlua"
local function layer(x)
  local y = x + ml.ones({5})
  return y
end
local step = ml.jit(function(x)
  local y = layer(x)
  return y
end)
step(ml.ones({3}))
]], ".lua")
    local _, err, code = run {script}
    assert.equal(1, code)
    assert.equal(script .. ":3: [E_SHAPE]", first_line(err):sub(1, #script + 13))
    for _, frame in ipairs {":3: in ", ":7: in ", ":10: in main chunk"} do
      assert.truthy(err:find(script .. frame, 1, true), frame .. err)
    end
  end)

  it("do not show the frames of an earlier error that was caught", function()
    local script = file([[
local ml = require "meshlua"
local step = ml.jit(function(x) return x + ml.ones({5}) end)
pcall(step, ml.ones({3}))
error("another")
]], ".lua")
    local _, err = run {script}
    assert.equal(script .. ":4: another", first_line(err))
    assert.falsy(err:find(script .. ":2:", 1, true), err)
  end)

  it("that are no strings print as in stock lua", function()
    local _, err = run {"-e", "error({})"}
    assert.equal("meshlua: (error object is a table value)", first_line(err))
    _, err = run {"-e", "error(setmetatable({}, {__tostring = function() return 'mine' end}))"}
    assert.equal("meshlua: mine\n", err)
    _, err = run {"-e", "error()"}
    assert.equal("meshlua: (error object is a nil value)", first_line(err))
  end)

  it("of syntax name file and line; a missing script is wrong use", function()
    local script = file("x = = 1", ".lua")
    local _, err, code = run {script}
    assert.equal(1, code)
    assert.equal(script .. ":1: ", err:sub(1, #script + 4))
    _, err, code = run {"nowhere.lua"}
    assert.equal(2, code)
    assert.equal("meshlua: cannot open nowhere.lua: No such file or directory\n", err)
  end)

  it("in a to-be-closed file's block leave the file whole", function()
    local name = file("")
    run {"-e", ("local f <close> = io.open('%s', 'w') f:write('whole') error('stop')"):format(name)}
    local handle <close> = io.open(name)
    assert.equal("whole", handle:read "a")
  end)
end)

describe("exit codes", function()
  it("are the script's own", function()
    assert.equal(0, select(3, run {"-e", ""}))
    assert.equal(1, select(3, run {"-e", "error 'x'"}))
    assert.equal(4, select(3, run {"-e", "os.exit(4)"}))
    assert.equal(1, select(3, run {"-e", "os.exit(false, true)"}))
    assert.equal(143, select(3, shell [["$MESHLUA" -e 'os.execute("kill -TERM $PPID") while true do end']]))
  end)
end)

describe("the REPL, piped", function()
  local function repl(input)
    local out, err, code = run({"-i"}, input)
    assert.equal(0, code)
    return out, err
  end

  it("prints expressions, with and without =", function()
    assert.equal("2\n3\tnil\nnil\n", (repl "1+1\n=3, nil\nnil\n"))
  end)

  it("a semicolon at the end suppresses", function()
    assert.equal("1\n", (repl "x = 1;\nx;\nx\n"))
  end)

  it("_ is the last value", function()
    assert.equal("4\n16\n", (repl "2+2\n_ * 4\n"))
  end)

  it("goes on while the text is unfinished", function()
    assert.equal("1\n2\n7\n", (repl "for i = 1, 2 do\nprint(i)\nend\n3 +\n4\n"))
    assert.equal("3\n", (repl "=1 +\n2\n"))
  end)

  it("survives errors, and says where", function()
    local out, err = repl "error 'no'\nx y\nerror({})\nsetmetatable({}, {__tostring = error})\n5\n"
    assert.equal("<__tostring raised: an error that is a table>\n5\n", out)
    assert.truthy(err:find("stdin:1: no\n", 1, true))
    assert.truthy(err:find("stdin:1: syntax error near 'y'\n", 1, true))
    assert.truthy(err:find("(error object is a table value)\n", 1, true))
    assert.falsy(err:find("repl.lua", 1, true), err)
  end)

  it("has ml at hand, and an unfinished last line is an error", function()
    local out, err = repl "ml.ones({2}):sum():item()\nfor"
    assert.equal("2.0\n", out)
    assert.truthy(err:find "<eof>")
  end)

  it("runs jitted functions line after line", function()
    assert.equal("2.0\n3.0\n", (repl("f = ml.jit(function(x) return x + 1 end)\n"
      .. "f(ml.tensor(1.0)):item()\nf(ml.tensor(2.0)):item()\n")))
  end)

  it("comes after the script with -i", function()
    local script = file("x = 7")
    assert.equal("7\n", (run({"-i", script}, "x\n")))
  end)
end)
