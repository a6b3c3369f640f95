-- module.lua: classes of modules. A module is a plain table: Params, other modules and lists of them are
-- its tree; numbers, strings and booleans in it are static. Its class wraps what is called on it, so that
-- ops inside know the user's line and the module's path ("h.3.mlp.up").
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

-- Metatable of instances -> true: tells modules from other tables.
local instance_metas = setmetatable({}, {__mode = "k"})
-- Class -> true.
local classes = setmetatable({}, {__mode = "k"})

--- Is x a module (an instance of a class made by nn.module)?
---@param x any
---@return boolean
function M.is_module(x)
  return type(x) == "table" and instance_metas[getmetatable(x)] == true
end

--- Is x a class made by nn.module?
---@param x any
---@return boolean
function M.is_class(x) return classes[x] == true end

--- Calls visit(module, path) for every module in the tree, the outer before the inner, each once.
---@param tree any
---@param visit fun(module: table, path: string)
function M.each(tree, visit)
  lib.check_function("nn.each_module", visit)
  local seen, above = {}, {}
  local function go(node, path)
    if type(node) ~= "table" or seen[node] then return end
    seen[node] = true
    lib.enter("a module", node, above)
    if M.is_module(node) then visit(node, path) end
    for _, key in ipairs(core.tree_keys(node)) do
      go(rawget(node, key), lib.below(path, key))
    end
    lib.leave(node, above)
  end
  go(tree, "")
end

local function set_training(tree, value)
  M.each(tree, function(module) rawset(module, "training", value) end)
  return tree
end

-- ---- text -----------------------------------------------------------------------------------------

local function axes_text(box)
  local axes = core.box_meta(box).axes
  if axes == nil then return "" end
  if core.is_spec(axes) then return "  " .. tostring(axes) end
  local words = {}
  for d = 1, box.ndim do words[d] = axes[d] or "-" end
  return "  {" .. table.concat(words, ", ") .. "}"
end

--- "float32[128@data,512]  {embed, hidden}", and the kind where it is not "param".
local function param_text(box)
  local kind = box.kind ~= "param" and "  " .. box.kind or ""
  return core.typeof(box) .. axes_text(box) .. kind
end

--- The static fields of a table as "(features = 128, rate = 0.1)".
local function static_text(node)
  local words = {}
  for _, key in ipairs(core.tree_keys(node)) do
    local value = node[key]
    local kind = type(value)
    local shown = kind == "number" or kind == "string" or kind == "boolean"
    if shown and not (key == "training" and value == true) then
      words[#words + 1] = tostring(key) .. " = " .. tostring(value)
    end
  end
  return #words > 0 and "(" .. table.concat(words, ", ") .. ")" or ""
end

local function add_lines(lines, node, indent, seen)
  for _, key in ipairs(core.tree_keys(node)) do
    local value, label = node[key], string.rep("  ", indent) .. tostring(key) .. ": "
    if core.is_box(value) then
      lines[#lines + 1] = label .. (seen[value] and "the same as " .. seen[value] or param_text(value))
      seen[value] = seen[value] or tostring(key)
    elseif core.is_tensor(value) then
      lines[#lines + 1] = label .. core.typeof(value)
    elseif type(value) == "table" then
      local meta = getmetatable(value)
      local name = M.is_module(value) and meta.__name or "list of " .. #value
      if #value == 0 and not M.is_module(value) then name = "table" end
      lines[#lines + 1] = label .. name .. static_text(value)
      add_lines(lines, value, indent + 1, seen)
    end
  end
end

--- The module's tree, a line for each Param with its type and axes.
---@param module table
---@return string
function M.text(module)
  local lines = {getmetatable(module).__name .. static_text(module)}
  add_lines(lines, module, 1, {})
  return table.concat(lines, "\n")
end

-- ---- classes ----------------------------------------------------------------------------------------

--- What every module has, unless its class says otherwise.
local base = {}

--- Switches the module and all in it to training (dropout acts); returns it. A static of jitted calls.
function base.train(self) return set_training(self, true) end

--- Switches the module and all in it to evaluation; returns it.
function base.eval(self) return set_training(self, false) end

-- Words of other libraries: they raise, and say what to write.
for _, name in ipairs {"zero_grad", "state_dict", "load_state_dict", "named_parameters", "requires_grad_",
  "cuda", "forward", "parameters", "to"} do
  base[name] = function(...) return lib.unknown("module", name, ...) end
end

for name, method in pairs(base) do base[name] = core.wrap(method, false, "module:" .. name) end

--- What is called where a class has no __call.
local function not_called(name, methods)
  raise("E_KEY", "%s cannot be called: write function %s:__call(...)%s", name, name,
    rawget(methods, "forward") and ", which is the name of forward here" or "")
end

local function construct(meta, methods, ...)
  local self = setmetatable({training = true}, meta)
  if methods.init then
    methods.init(self, ...)
  elseif select("#", ...) > 0 then
    raise("E_VALUE", "%s has no init, but is made with arguments", meta.__name)
  end
  return self
end

--- A class of modules. Write `function Name:init(...)` and `function Name:__call(x)` on what is returned;
--- calling it makes a module: Name(...).
---@param name string what print and scopes call it
---@param missing nil|fun(self: table, key: any): any for the library: fields that an instance lacks
---@return table class, table meta the metatable of its instances
function M.module(name, missing)
  if type(name) ~= "string" or name == "" then
    raise("E_VALUE", "nn.module: expected the class's name, got %s", type(name))
  end
  local methods = setmetatable({}, {__index = base})
  local index = missing and function(self, key)
    local method = methods[key]
    if method ~= nil then return method end
    return missing(self, key)
  end or methods
  local meta = {__name = name, __index = index, __tostring = core.plain(M.text)}
  meta.__call = core.wrap(function(...) return not_called(name, methods, ...) end)
  instance_metas[meta] = true
  local class = setmetatable({}, {
    __name = name,
    __index = methods,
    __newindex = function(_, key, value)
      local event = type(key) == "string" and key:sub(1, 2) == "__"
      if event and key ~= "__call" and key ~= "__tostring" then
        raise("E_KEY", "%s.%s: a module can have __call and __tostring of its own, nothing else", name,
          key)
      end
      -- init runs while the module has no place in a tree yet: no scope of its own.
      if type(value) == "function" then value = core.wrap(value, key ~= "init", name .. ":" .. key) end
      if event then meta[key] = value else methods[key] = value end
    end,
    __call = core.wrap(function(_, ...) return construct(meta, methods, ...) end),
    __tostring = function() return "nn.module " .. name end,
  })
  classes[class] = true
  return class, meta
end

--- Modules (or functions) called one behind the other: nn.Sequential{nn.Linear(...), nn.relu, ...}.
M.Sequential = M.module("Sequential")

function M.Sequential:init(layers)
  if type(layers) ~= "table" or M.is_module(layers) then
    raise("E_VALUE", "nn.Sequential: expected a list of modules and functions, got a %s",
      M.is_module(layers) and getmetatable(layers).__name or type(layers))
  end
  for i, layer in ipairs(layers) do
    if type(layer) ~= "function" and not M.is_module(layer) then
      raise("E_VALUE", "nn.Sequential: entry %d is a %s; expected a module or a function", i, type(layer))
    end
    self[i] = layer
  end
end

--- Further arguments go to the layers that take them: rngs to Dropout, and not to relu.
function M.Sequential:__call(x, ...)
  local n = select("#", ...)
  if n == 0 then
    for _, layer in ipairs(self) do x = layer(x) end
    return x
  end
  local more = {...}
  for _, layer in ipairs(self) do
    local is_module = M.is_module(layer)
    local fn = is_module and getmetatable(layer).__call or layer
    local takes = fn and core.accepts(fn) - (is_module and 2 or 1) or n
    x = layer(x, table.unpack(more, 1, math.min(n, takes)))
  end
  return x
end

return M
