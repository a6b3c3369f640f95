-- show_spec.lua: any value has a text with bounds: tables and what is in them, functions, classes; and an answer where
-- a value does all it can to have none.
local helper = require "spec.helper"
local ml = require "meshlua"

local show, nn = ml.show, ml.nn

--- No line is wider, but for words that are.
local function check_width(text, width)
  for line in text:gmatch "[^\n]+" do assert(utf8.len(line) <= width or not line:find " .* ", line) end
end

describe("show", function()
  it("writes plain values as Lua does", function()
    for _, case in ipairs {{"nil", nil}, {"1", 1}, {"1.5", 1.5}, {"inf", 1 / 0}, {"nan", 0 / 0},
      {"true", true}, {"two\nlines\\x07", "two\nlines\7"}, {'"a\\"b\\\\\\x1B[1m"', 'a"b\\\27[1m'},
      {'"\\xFF é"', "\xff é"}} do
      assert.equal(case[1], show(case[2]))
    end
  end)

  it("writes tables in a line where they fit, else a line for each entry, with sorted keys", function()
    assert.equal("{}", show {})
    assert.equal('{1, 2, "x", {3}}', show {1, 2, "x", {3}})
    assert.equal('{[10] = 4, a = 1, ["b c"] = 2, ["end"] = 3, [true] = 5}',
      show {a = 1, ["b c"] = 2, [true] = 5, [10] = 4, ["end"] = 3})
    assert.equal("{\n  1, 2, 3,\n  4, 5, 6,\n  7, 8\n}", show({1, 2, 3, 4, 5, 6, 7, 8}, {width = 11}))
    assert.equal("{\n  a = {1, 2},\n  b = {\n    10000,\n    20000\n  }\n}",
      show({a = {1, 2}, b = {10000, 20000}}, {width = 14}))
    assert.equal("My{n = 1}", show(setmetatable({n = 1}, {__name = "My"})))
  end)

  it("shows of a tensor in a table the type, and the values of a few", function()
    assert.equal("{b = float32[3] [0. 1. 2.], w = float32[2,3]}",
      show {w = ml.ones {2, 3}, b = ml.arange(3.0)})
    assert.equal("{float32[] 0.25}", show {ml.tensor(0.25)})
    assert.equal("Param(param, float32[2])\n[0. 1.]", show(nn.Param(ml.arange(2.0))))
    assert.equal("float32[2]\n[0.33 0.67]", show(ml.tensor {1 / 3, 2 / 3}, {precision = 2}))
    local model = nn.Linear(2, 3, {rngs = nn.Rngs(0)})
    assert.equal("Linear(inputs = 1)\n  bias: float32[3]\n  kernel: float32[2,3]", show(model))
  end)

  it("says how functions are called, and what modules have", function()
    assert.equal("matmul(x: Tensor, w: Tensor, {preferred_element_type: dtype}) -> Tensor\n",
      show(ml.matmul):match "^[^\n]*\n")
    assert.truthy(show(nn.Linear):find "^nn%.Linear%(n_in: integers, n_out: integers, {")
    assert.equal("function string.format", show(string.format))
    local own = show(function(_, b, ...) return b, ... end)
    assert.truthy(own:find "^function%(_, b, %.%.%.%) at .*show_spec%.lua:")
    local text = show(ml, {width = 60})
    assert.truthy(text:find "^module meshlua\n")
    assert.truthy(text:find "%f[%w]matmul%f[%W]")
    check_width(text, 60)
  end)

  it("shows what jit traced, lowers and plans", function()
    local step = ml.jit(function(x) return x * 2 end)
    assert.truthy(show(step:trace(ml.ones {2})):find("mul", 1, true))
    assert.truthy(show(step:plan(ml.ones {2})):find("return", 1, true))
    assert.equal("{Program}", show {step:program(ml.ones {2})})
  end)
end)

describe("an answer comes of", function()
  it("tables that contain themselves", function()
    local a, b = {1}, {}
    a.itself, a.b, b.a = a, b, a
    assert.equal("{1, b = {a = {… the table 2 up}}, itself = {… the table 1 up}}", show(a))
    local deep = {}
    local at = deep
    for _ = 1, 1e5 do at[1] = {} at = at[1] end
    assert.equal(("{"):rep(13) .. "…" .. ("}"):rep(13), show(deep))
  end)

  it("large tables and texts, which are cut", function()
    local list, map = {}, {}
    for i = 1, 1e6 do list[i] = i end
    for i = 1, 2e5 do map["key" .. i] = i end
    assert.truthy(show(list):find "… 999900 more\n}$")
    assert.truthy(show(map, {items = 3}):find ", … 199997 more}$")
    assert.equal(('"%s" … %d more bytes'):format(("x"):rep(1 << 16), (1 << 24) - (1 << 16)),
      show(("x"):rep(1 << 24)))
    local wide, text = {}, ("y"):rep(1e5)
    for i = 1, 100 do
      wide[i] = {}
      for k = 1, 100 do wide[i][k] = text end
    end
    assert.is_true(#show(wide) < 1 << 17)
  end)

  it("metamethods that raise, call themselves, or say no text", function()
    local function with(meta) return setmetatable({a = 1}, meta) end
    assert.equal("{a = 1}", show(with {__index = error, __len = error, __eq = error, __metatable = 1}))
    local raises = with {__tostring = function() error("no\nmore") end}
    assert.truthy(show(raises):find "^<__tostring raised: .*no>$")
    assert.truthy(show(with {__tostring = function() error {} end}):find("an error that is a table", 1, true))
    assert.truthy(show(with {__tostring = function() return {} end}):find "must return a string")
    local endless = with {__tostring = function(t) return tostring(t) end}
    assert.truthy(show {endless}:find "^{<__tostring raised: .*overflow")
    assert.truthy(show(with {__pairs = function() error "no" end}):find "^{<__pairs raised: .*no>}$")
    local many = with {__pairs = function(t) return function(_, k) return (k or 0) + 1, t end end}
    assert.truthy(show(many, {items = 1}):find("more than 9999 more", 1, true))
    assert.truthy(show(with {__tostring = function() return ("z"):rep(1e6) end}):find "more bytes$")
    assert.equal("E{a = 1}", show(with {__name = "E"}))
  end)

  it("any width", function()
    local model = nn.Linear(2, 3, {rngs = nn.Rngs(0)})
    local values = {1, "text", ml.arange(30.0), {ml.ones {2}, {a = {b = {c = {1, 2, 3}}}}}, model,
      ml.jit(function() end), ml.matmul, ml.P("x"), ml.make_mesh({ml.device_count()}, {"x"}),
      ml.arange(3.0).shape, ml.nn, coroutine.create(print), io.stdout}
    for _, width in ipairs {1, 2, 5, 20, 40, 1000} do
      for _, value in ipairs(values) do assert.is_true(#show(value, {width = width}) > 0) end
      assert.is_true(#show(values, {width = width}) > 0)
    end
    check_width(show(ml.arange(30.0), {width = 20}), 20)
  end)

  it("a wish to stop, which is not kept", function()
    local stubborn = setmetatable({}, {__tostring = function() error("[E_INTERRUPT] stopped", 0) end})
    helper.raises("[E_INTERRUPT] stopped", show, {stubborn})
  end)
end)
