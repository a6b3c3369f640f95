-- devices: 8
-- complete_spec.lua: what Tab finds: every public name, method, field and option; names, axes, files; and how fast.
local complete = require "meshlua.repl.complete"
local exports = require "meshlua.exports"
local help = require "meshlua.repl.help"
local lib = require "meshlua.lib"
local ml = require "meshlua"

local session = {blocks = {}}

--- Is a word among what may stand at the end of a text?
local function finds(text, word)
  return lib.position(complete.at(session, text).list, word) ~= nil
end

local function list(text) return complete.at(session, text).list end

--- An expression of the type that rows have in front of a method or field; nil: the type is a class of its own.
local values = {Tensor = "ml.ones({2})", Param = "ml.nn.Param(ml.ones({2}))", P = "ml.P()",
  Mesh = "ml.make_mesh({1}, {'a'})", NamedSharding = "ml.NamedSharding(mesh, spec)", jit = "ml.jit(print)",
  Plan = "ml.jit(print):plan()",
  Program = "ml.jit(print):program()", tokens = "ml.data.tokens 'file'", module = "ml.nn.Linear(1, 2)",
  Records = "ml.data.idx({})", Batches = "ml.data.idx({}):shuffled({})",
  Manager = "ml.checkpoint.Manager 'folder'", Optimizer = "ml.optim.sgd(model)",
  LossScale = "ml.optim.LossScale()", Traced = "ml.jit(print):trace()", Lowered = "ml.jit(print):lower()",
  Compiled = "ml.jit(print):lower():compile()", DistributedConfig = "ml.distributed()",
  RngStream = "ml.nn.RngStream()", At = "ml.ones({2}):at(0)",
  Cache = "ml.cache(model, 1, 1)", Past = "ml.cache(model, 1, 1):open(ids)",
  Tokenizer = "ml.tokenizer('file')",
  Trainer = "ml.train.Trainer('gpt')", ChatTemplate = "ml.chat_template('text')",
  EMA = "ml.optim.EMA(model)", Mean = "ml.metrics.Mean()", Accuracy = "ml.metrics.Accuracy()",
  Perplexity = "ml.metrics.Perplexity()", MultiMetric = "ml.metrics.MultiMetric({})"}

--- How a public name is written, as a text to be completed, and its last word.
local function written(name)
  local owner, mark, own = name:match "^([%w_]+)([.:])([%w_]+)$"
  if not owner then return "ml." .. name, name end
  if mark == ":" or exports.row(name).field then
    return (values[owner] or ("ml.nn.%s()"):format(owner)) .. mark .. own, own
  end
  if owner == "initializers" then return "ml.nn." .. name, own end
  return "ml." .. name, own
end

local function begin() session.live = {ml = {value = ml}} end

describe("Tab", function()
  before_each(begin)

  it("finds every public name, method and field", function()
    for _, name in ipairs(exports.names()) do
      local text, own = written(name)
      if own:sub(1, 2) ~= "__" then assert.truthy(finds(text:sub(1, -2), own), name .. " in " .. text) end
    end
  end)

  it("finds every option", function()
    for _, name in ipairs(exports.names()) do
      local row = exports.row(name)
      local text, own = written(name)
      for option in pairs(own:sub(1, 2) ~= "__" and row.options or {}) do
        assert.truthy(finds(text .. "(x, {", option), name .. " " .. option)
        assert.truthy(finds(text .. " {" .. option:sub(1, 1), option), name .. " " .. option)
        assert.falsy(finds(text .. "(x, {" .. option .. " = 1, ", option), name .. " " .. option)
      end
    end
  end)

  it("finds names: locals, globals, keywords, what the text has named", function()
    session.live.of_live = {value = 1}
    _G.of_globals = 1
    assert.same({"of_globals", "of_live"}, list "x + of_")
    assert.same({"of_text"}, list "for of_text = 1, 2 do print(of_t")
    assert.same({"function"}, list "local f = func")
    assert.same({}, list "x = ")
    assert.same({}, list "-- of_")
    _G.of_globals = nil
  end)

  it("finds fields of tables and what stands behind them, without calling anything", function()
    local called = false
    session.live.t = {value = setmetatable({alpha = {beta = {gamma = 1}}, [1] = 2, ["a b"] = 3},
      {__index = function() called = true end})}
    assert.same({"alpha"}, list "t.")
    assert.same({"gamma"}, list "t.alpha.beta.")
    assert.same({"gamma"}, list "t['alpha'].beta.g")
    assert.same({}, list "t.missing.")
    assert.falsy(called)
    local Class = ml.nn.module "Class"
    function Class:init() self.kernel = 1 end
    session.live.c, session.live.Class = {value = Class()}, {value = Class}
    assert.truthy(finds("c.", "kernel"))
    assert.truthy(finds("c:", "train"))
  end)

  it("finds methods of strings and files", function()
    assert.truthy(finds("('x'):r", "rep"))
    assert.same({"upper"}, list "('x'):up")
    assert.same({"lines"}, list "io.stdout:li")
  end)

  it("finds the axes of the meshes at hand within P", function()
    session.live.mesh = {value = ml.make_mesh({4, 2}, {"data", "model"})}
    session.live.Spec = {value = ml.P}
    assert.same({'"data"', '"model"'}, list "ml.P(")
    assert.same({'"data"', '"model"'}, list "Spec(nil, ")
    assert.same({"model"}, list "ml.NamedSharding(mesh, Spec('data', 'mo")
    assert.same({"data", "model"}, list 'ml.P({"')
  end)

  it("finds files in strings, and words that an option takes", function()
    assert.same({"block_spec.lua"}, list "dofile('tests/repl/blo")
    local found = complete.at(session, "dofile('tests/rep")
    assert.same({"rep", {"repl"}, "/"}, {found.word, found.list, found.notes.repl})
    assert.same({"float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"},
      list "ml.nn.Linear(1, 2, {dtype = 'flo")
    assert.same({"same"}, list "ml.conv(x, w, {padding = 'sa")
  end)

  it("shows how a function is called", function()
    assert.truthy(complete.at(session, "ml.zeros(").signature:find "^zeros%(shape: shape")
    assert.truthy(complete.at(session, "ml.matmul").signature:find "^matmul%(")
    session.live.own = {value = function(first, ...) return first, ... end}
    assert.equal("own(first, ...)", complete.at(session, "own(").signature)
    assert.equal("own(first, ...)", complete.at(session, "own(1, ").signature)
  end)

  it("says nothing, and breaks nothing, in what is no Lua", function()
    local text = "local a.b:c(]{ 'x [[ y } end for ( \\ :: ~ . : ml. ml: P( ( { ("
    for i = 1, #text do
      for j = i, #text do complete.at(session, text:sub(i, j)) end
    end
  end)

  it("takes less than 20 ms with 2,000 names", function()
    for i = 1, 2000 do _G["name_" .. i] = i end
    for _, text in ipairs {"name_", "ml.", "ml.ones({2}):", "ml.nn.Linear(1, 2, {"} do
      local best = math.huge
      assert.truthy(#list(text) > 5)
      for _ = 1, 5 do
        local from = os.clock()
        complete.at(session, text)
        best = math.min(best, os.clock() - from)
      end
      assert.truthy(best < 0.020, ("%s: %.1f ms"):format(text, best * 1e3))
    end
    for i = 1, 2000 do _G["name_" .. i] = nil end
  end)
end)

describe("help", function()
  before_each(begin)

  it("knows every public name, as it is written and as a value", function()
    for _, name in ipairs(exports.names()) do
      local text, own = written(name)
      local lines = help.of_word(session, text)
      assert.truthy(lines and #lines > 0, text)
      assert.truthy(help.of_word(session, name), name)
      local as_tensor = name:find "^At:" and exports.row(own) -- at(...) may give a Tensor, whose method it is then
      if own:sub(1, 2) ~= "__" and not exports.row(name).field and not as_tensor then
        local said = table.concat(lines, " "):gsub("%s+", " ")
        local doc = exports.row(name).doc:gsub("%s+", " "):sub(1, 40)
        assert.truthy(said:find(doc, 1, true), text .. ": " .. said)
      end
    end
    assert.truthy(table.concat(help.about(session, ml.matmul)):find "matrix product")
  end)

  it("knows error codes, flags, verbs and what is one's own", function()
    for _, word in ipairs {"E_SHAPE", "--devices", "devices", "train", "MESHLUA_PATH"} do
      assert.truthy(help.of_word(session, word), word)
    end
    session.live.x = {value = ml.ones({2})}
    assert.truthy(help.of_word(session, "x")[1]:find "Tensor")
    local _, message = help.of_word(session, "matmull")
    assert.equal("nothing is known of 'matmull'; did you mean matmul?", message)
  end)
end)
