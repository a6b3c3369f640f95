-- types_spec.lua: the annotations for editors that `meshlua --types` prints: Lua, with every public name and nothing
-- else, and annotations that can be read.
local helper = require "spec.helper"
local exports = require "meshlua.exports"
local all = require "meshlua.exports.all"

local text = require("meshlua.exports.types").text()

-- ---- a reader of annotations -----------------------------------------------------------------------------

local builtin = {any = true, boolean = true, integer = true, number = true, string = true, table = true,
  ["function"] = true, ["nil"] = true, ["true"] = true, ["false"] = true}
local declared = {}
for name in text:gmatch "\n%-%-%-@class (%w+)" do declared[name] = true end
for name in text:gmatch "\n%-%-%-@alias (%w+)" do declared[name] = true end

local read_type

--- Reads what a pattern finds at a place; its capture, and the place behind it; nil where it does not.
local function take(s, at, pattern)
  local _, stop, found = s:find("^" .. pattern, at)
  if stop then return found or "", stop + 1 end
end

--- Reads "name: type" or "name?: type", with commas between, up to the closing bracket.
local function read_fields(s, at, close, is_call)
  local done = select(2, take(s, at, close))
  while not done do
    local name, behind = take(s, at, is_call and "([%w_.]+)%??: " or "([%a_][%w_]*)%??: ")
    assert(name and (not name:find "%." or name == "..."), "no name at: " .. s:sub(at))
    at = read_type(s, behind)
    local _, comma = take(s, at, ", ")
    if comma then at = comma else done = assert(select(2, take(s, at, close)), "no end at: " .. s:sub(at)) end
  end
  return done
end

--- One alternative; the place behind it.
local function read_one(s, at)
  local _, behind = take(s, at, '"[%w_.+ -]+"')
  if behind then return behind end
  _, behind = take(s, at, "%(")
  if behind then return assert(select(2, take(s, read_type(s, behind), "%)")), "no ) in: " .. s) end
  _, behind = take(s, at, "{")
  if behind then return read_fields(s, behind, "}") end
  _, behind = take(s, at, "fun%(")
  if behind then
    at = read_fields(s, behind, "%)", true)
    _, behind = take(s, at, ": ")
    return behind and read_type(s, behind) or at
  end
  local name
  name, behind = take(s, at, "([%a][%w]*)")
  assert(name and (builtin[name] or declared[name]), "no type at: " .. s:sub(at))
  _, at = take(s, behind, "<")
  if not at then return behind end
  _, at = take(s, read_type(s, at), ", ")
  return assert(select(2, take(s, read_type(s, assert(at, s)), ">")), "no > in: " .. s)
end

function read_type(s, at)
  at = read_one(s, at)
  while true do
    local _, behind = take(s, at, "%[%]")
    if not behind then _, behind = take(s, at, "%?") end
    if not behind then
      _, behind = take(s, at, "|")
      return behind and read_type(s, behind) or at
    end
    at = behind
  end
end

--- The whole of s from a place on is a type, but for what `behind` allows.
local function check_type(s, at, behind)
  local rest = s:sub(read_type(s, at))
  if rest ~= "" and not (behind and rest:find(behind)) then error("what is '" .. rest .. "' in: " .. s, 0) end
end

-- ---- the file ------------------------------------------------------------------------------------------

describe("the annotations", function()
  it("are what meshlua --types prints", function()
    assert.equal(text, (helper.run {"--types"}))
    assert.equal("---@meta meshlua", text:match "^[^\n]*")
  end)

  it("can be read, each, and name a function's parameters", function()
    local params, n = {}, 0
    for line in text:gmatch "[^\n]+" do
      local word, behind = line:match "^%-%-%-@(%l+) ()"
      local at, name
      if word then n = n + 1 end
      if word == "param" then
        name, at = line:match("^([%a_.][%w_.]*)%?? ()", behind)
        params[#params + 1] = name
        check_type(line, at)
      elseif word == "return" then check_type(line, behind, "^ %.%.%.$")
      elseif word == "overload" then check_type(line, behind)
      elseif word == "alias" then check_type(line, line:match("^DType ()", behind))
      elseif word == "field" then check_type(line, line:match("^[%a_][%w_]* ()", behind), "^ [%u\"]")
      elseif word == "operator" then
        local operand = line:match("^%l+%(()", behind)
        if operand then check_type(line, operand, "^%): Tensor$")
        else check_type(line, line:match("^%l+: ()", behind)) end
      elseif word == "class" then
        local parent = line:match("^[%w]+: (%w+)$", behind) or line:match("^%w+$", behind)
        assert.truthy(parent, line)
        assert.is_true(declared[parent], line)
      elseif word then assert.equal("meta", word)
      elseif line:find "^function " then
        assert.equal(line:match "%((.-)%) end$", table.concat(params, ", "), line)
        params = {}
      else
        assert.truthy(line:find "^%-%-%- " or line:find "^%-%- Made" or line:find "^local %w+ = {"
          or line:find "^ml%.[%w_.]+ = {}$" or line == "return ml", line)
      end
    end
    assert.is_true(n > 1500, n)
  end)

  it("are Lua, with every row and every public name, and no other", function()
    local ml = assert(load(text, "=types", "t"))()
    local there = {}
    for name in text:gmatch "\nfunction ([%w_.:]+)%(" do
      if name:find ":" then there[name] = true end
    end
    local function walk(module, prefix)
      for key, value in pairs(module) do
        if type(value) == "function" then there[prefix .. key] = true end
        if type(value) == "table" then walk(value, key .. ".") end
      end
    end
    walk(ml, "")
    local seen = {}
    local function is_there(name)
      name = name:gsub("^jit:", "JittedFunction:"):gsub("^tokens:", "Tokens:"):gsub("^module:", "Module:")
      seen[name] = true
      return there[name]
    end
    for _, name in ipairs(exports.names()) do
      local row = exports.row(name)
      local of, own = name:match "^(%w+)[.:]([%w_]+)$"
      if own == "__call" then
        assert.truthy(text:find("\n%-%-%-@class " .. of .. "[^\n]*\n%-%-%-@overload fun%("), name)
      elseif row.field then
        assert.truthy(text:find("\n---@field " .. own .. " ", 1, true), name)
      else
        assert.is_truthy(is_there(name), name)
      end
      if row.family == "tensor" and not of then assert.is_truthy(is_there("Tensor:" .. name), name) end
    end
    for name in pairs(all.functions()) do
      if not name:find ":__call$" then assert.is_truthy(is_there(name), name) end
    end
    for name in pairs(there) do assert.is_true(seen[name], name) end
    for name in pairs(require("meshlua").core.methods "meshlua.Tensor") do
      assert.is_truthy(there["Tensor:" .. name], name)
    end
  end)

  it("say of which types a function is", function()
    for _, wanted in ipairs {
      "---@param x Tensor|number\n---@param y Tensor|number\n---@return Tensor\n",
      "---@return Plan\nfunction JittedFunction:plan(...) end",
      "---@field spec P Its P; nil for one device.",
      "---@class Param: Tensor\n",
      "---@class Linear: Module\n---@overload fun(x: Tensor): Tensor\n",
      "---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, "
        .. "out_sharding?: NamedSharding|P|table}): Tensor\nfunction Tensor:sum(axes, keepdims) end",
    } do assert.truthy(text:find(wanted, 1, true), wanted) end
  end)
end)
