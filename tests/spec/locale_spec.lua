-- locale_spec.lua: a script that sets a locale with a decimal comma changes what its own prints look like, and
-- nothing that the library writes or reads.
local busted = require "busted"
local helper = require "spec.helper"
local shell, file = helper.shell, helper.file
local read = helper.read

local SOURCES = "/usr/share/i18n/locales/de_DE" -- of Debian's package locales

--- The folder of a locale with a comma, made for these specs; nil, why: it cannot be.
local function make_locale()
  local sources = io.open(SOURCES)
  if not sources then return nil, "there are no sources of locales (Debian: locales)" end
  sources:close()
  local folder = os.tmpname()
  os.remove(folder)
  local made = os.execute(("mkdir %s && localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1"):format(
    folder, folder))
  if not made then return nil, "localedef fails" end
  return folder
end

local folder, why = make_locale()

local function it(name, fn)
  busted.it(name, function()
    if not folder then helper.pending(why) end
    fn()
  end)
end

--- Runs the program with these words, behind code that sets the locale; where `plain`, without it.
local function run(words, plain)
  local code = plain and "" or [[assert(os.setlocale "de_DE.UTF-8"); assert(tostring(1.5) == "1,5")]]
  local out, err, status = shell(([[LOCPATH=%s "$MESHLUA" -e '%s' %s]]):format(folder, code, words))
  return out, err, status
end

--- Both print the same.
local function same(words)
  local out, err, status = run(words)
  local wanted, wanted_err, wanted_status = run(words, true)
  assert.same({wanted, wanted_err, wanted_status}, {out, err, status})
  assert.truthy(#out + #err > 0)
  return out, err
end

describe("a decimal comma", function()
  teardown(function() if folder then os.execute("rm -r " .. folder) end end)

  it("is in no tensor, model, report, dump or error", function()
    same("--devices=8 --dump=all " .. file [[
      local ml = require "meshlua"
      local nn, P = ml.nn, ml.P
      local mesh = ml.make_mesh({2, 4}, {"data", "model"})
      for _, dtype in ipairs {"float32", "float64"} do print(ml.tensor({0.1, 1e-9, 2 / 3, 1e30}, dtype)) end
      print(nn.Dropout(0.25), nn.Linear(2, 3, {rngs = nn.Rngs(0)}))
      local w = ml.device_put(ml.ones {16, 32}, ml.NamedSharding(mesh, P(nil, "model")))
      local step = ml.jit(function(x, v, opts)
        return (x * 0.123 + 1.5e-7):matmul(v) * opts.scale
      end, {mesh = mesh})
      local x = ml.device_put(ml.full({8, 16}, 0.3), ml.NamedSharding(mesh, P "data"))
      print(step(x, w, {scale = 0.1}):sum())
      print(ml.explain(step, x, w, {scale = 0.1}))
      print(ml.verify(step, x, w, {scale = 0.1}))
      print(ml.why_sharding(w))
      print(ml.explain_rules({{"w", "model"}}, {w = nn.Param(w, {axes = {"w", false}})}, mesh))
      local static = ml.jit(function(a, t) return a * t.s end, {static = {2}})
      static(x, {s = 0.5}) static(x, {s = 0.1}) print(static:why_miss())
      ml.jit(function(a) ml.debug_print("%.3f %s", a:sum(), 0.5) return a end)(x)
      for _, fn in ipairs {function() return ml.full({2}, 1e300) end,
          function() return ml.tensor({1.5}, "int32") end,
          function() return ml.schedule.warmup_cosine {warmup_steps = 0.5, decay_steps = 0.25} end} do
        print(select(2, pcall(fn)))
      end
      print(ml.core.bytes_text(1.5e9))
    ]])
  end)

  helper.figures("is in no error, of calls drawn from all functions, or of what floats are keys", function()
    local out = run("--devices=2 " .. file(([[
      package.path = "tests/?.lua;" .. package.path
      local misuse, ml = require "spec.misuse", require "meshlua"
      local some = 0
      local function look(call, ok, text)
        if ok or type(text) ~= "string" then return end
        if text:find "%f[%d]0,5%f[%D]" or text:find "0,001" then print(call, text) end
        if text:find "%f[%d]0%.5%f[%D]" then some = some + 1 end
      end
      misuse.draw(misuse.rows(), DRAWN, look)
      for _, called in ipairs(misuse.rows()) do
        local fn, row = misuse.bound(called), called.row
        for _, first in ipairs(misuse.firsts(row)) do
          look(row.name, pcall(fn, first(), 0.5))
          look(row.name, pcall(fn, first(), 0.5, 0.5))
          look(row.name, pcall(fn, first(), nil, nil, 0.5))
          for option in pairs(row.options or {}) do
            local args = {first(), [#row.params + 1] = {[option] = 0.5}}
            look(row.name, pcall(fn, table.unpack(args, 1, #row.params + 1)))
          end
        end
      end
      local x, tree = ml.ones {2}, {[0.5] = 1, [1] = print}
      local floats = {function() ml.jit(function(t) return t end)({[0.5] = x, a = print}) end,
        function() ml.device_put({[0.5] = x}, {[1.5] = 1}) end,
        function() return x[0.5] end,
        function() ml.scan(function(c) return c end, x, {[0.5] = x, a = ml.ones {3}}) end}
      for i, fn in ipairs(floats) do look("floats " .. i, pcall(fn)) end
      print(some > 100 and "many" or some)
    ]]):gsub("DRAWN", "6000")))
    assert.equal("many\n", out)
  end)

  it("is in no device code", function()
    local out, err = run(("--devices=fake:h200:1 --dump=source %s"):format(file [[
      local ml = require "meshlua"
      local sum = ml.jit(function(x) return (ml.tanh(x * 0.044677734) + 1e-5):astype "float64" * 0.1 end)
      sum:plan(ml.zeros {64})]]))
    assert.truthy((out .. err):find("0.044677734f", 1, true), out .. err)
    assert.truthy(err:find("0.1", 1, true) and not err:find "%d,%d%d")
  end)

  it("is in nothing that a run writes or says", function()
    local text, files = file(("a line of text\n"):rep(300)), {}
    local function train(plain)
      local metrics, trace = file "", file ""
      local out, err, code = run(("models/train.lua --layers=1 --width=16 --heads=2 --seq=8 --batch=8 "
        .. "--steps=3 --log-every=1 --sample=20 --lr=0.002 --mesh=data:2 --rules=dp --data=%s --metrics=%s "
        .. "--profile=%s")
        :format(text, metrics, trace), plain)
      assert.same({"", 0}, {err, code})
      files[#files + 1] = trace
      return out, read(metrics)
    end
    --- Times and what depends on them differ from run to run.
    local function shape(s) return (s:gsub("[%d.]+", "#")) end
    local out, metrics = train()
    local wanted, wanted_metrics = train(true)
    assert.equal(shape(wanted:match "^(.-); events in"), shape(out:match "^(.-); events in"))
    assert.falsy(out:find "%d,%d")
    assert.equal(shape(wanted_metrics), shape(metrics))
    assert.falsy(read(files[1]):find '":%d+,%d+,"', "a number in the profile")
    assert.truthy(read(files[1]):find '"ts":%d+%.%d%d%d,"dur":%d+%.%d%d%d,')
    local code = [[local json = require "meshlua.train.json"
      print(json.encode {a = 0.5, b = {1e-9, 3.0}, c = "\u{e9}\u{80}"})]]
    assert.equal('{"a":0.5,"b":[1e-09,3],"c":"\u{e9}\u{80}"}\n', (run("-e " .. "'" .. code .. "'")))
  end)

  it("is still the script's own behind what the library writes and reads", function()
    local code = [[local ml = require "meshlua"
      local function own(what) assert(tostring(1.5) == "1,5", what) end
      own("at first")
      local text = tostring(ml.tensor({0.5, 2.25})) own("text")
      ml.core.json("[0.5, 1e-3]") own("json")
      pcall(ml.zeros, {-1}) own("an error")
      io.stderr:write(tostring(ml.explain(ml.jit(function(x) return x * 2 end), ml.ones {4}))) own("a report")
      print(#text > 5)]]
    local out, err, status = run("-e '" .. code:gsub("\n%s*", " ") .. "'")
    assert.same({"true\n", 0}, {out, status}, err)
  end)

  it("is in no number that is read", function()
    local code = [[print(require("meshlua.train.options").parse({"--lr=0,5"}, {{"lr", 1.0}}))]]
    assert.equal("nil\t--lr=0,5: expected a number\n", (run("-e '" .. code .. "'")))
    assert.equal(2, select(3, run "models/train.lua --lr=0,5"))
  end)

  -- What these assert of texts is the same under any locale.
  for _, name in ipairs {"golden/text", "insight/budget", "insight/explain", "insight/rules", "config"} do
    it("changes nothing for " .. name .. "_spec.lua", function()
      local path = "tests/" .. (name:find "^golden" and "" or "spec/") .. name .. "_spec.lua"
      local handle <close> = assert(io.open(path))
      local devices = handle:read():match "^%-%- devices: *(%S+)"
      local out, _, code = run((devices and "--devices=" .. devices or "") .. " tests/specs.lua " .. path)
      assert.equal(0, code, out)
    end)
  end
end)
