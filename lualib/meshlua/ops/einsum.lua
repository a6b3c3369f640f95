-- einsum.lua: sums of products in which letters name dims, and the products that are said in words.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local args = require "meshlua.ops.args"
local matrix = require "meshlua.ops.matrix"
local reduce = require "meshlua.ops.reduce"

local op, raise = core.op, lib.raise
local check_tensor, meet = args.check_tensor, args.meet

local M = {}

-- ---- letters: "..." of an operand is a byte for each of its dims, the last one \1 --------------------------

--- The words of the operands and of the result (nil: none is given); each "..." is a "." in them.
local function read(spec, n)
  if type(spec) ~= "string" then
    raise("E_VALUE", "einsum: expected a text like \"ij,jk->ik\" first, got %s", lib.kind(spec))
  end
  local text = spec:gsub("%s", "")
  local stray = text:gsub("%.%.%.", ""):find(".", 1, true)
  text = text:gsub("%.%.%.", ".")
  local inputs, result = text:match "^([%a,.]*)%->([%a.]*)$"
  inputs = inputs or text:match "^[%a,.]*$"
  if not inputs or stray or (text .. ","):find "%.%a*%.[%a]*[,%-]" then
    raise("E_VALUE", "einsum: cannot read '%s'; write \"ij,jk->ik\"", spec)
  end
  local words = {}
  for word in (inputs .. ","):gmatch "([^,]*)," do words[#words + 1] = word end
  if #words ~= n then
    raise("E_VALUE", "einsum: '%s' has %s, given are %d", spec, lib.count(#words, "operand"), n)
  end
  return words, result
end

local function shown(letters) return (letters:gsub("%c+", "...")) end

--- A byte for each of n dims, the last one \1.
local function bytes_of(n)
  local list = {}
  for d = 1, n do list[d] = n + 1 - d end
  return string.char(table.unpack(list))
end

--- The letters of an operand's dims.
local function expanded(word, x)
  local dots, n = word:find(".", 1, true), x.ndim - #word
  if dots and n >= -1 then return (word:gsub("%.", bytes_of(n + 1))) end
  if n ~= 0 then raise("E_SHAPE", "einsum: '%s' for %s", word:gsub("%.", "..."), core.typeof(x)) end
  return word
end

--- The size of each letter over all operands: dims of size 1 stretch.
local function sizes_of(list)
  local size, by = {}, {}
  for _, t in ipairs(list) do
    for d, n in ipairs(t.x.shape) do
      local c = t.letters:sub(d, d)
      if n ~= 1 and size[c] and size[c] ~= 1 and size[c] ~= n then
        raise("E_SHAPE", "einsum: '%s' is %d in '%s' (%s) and %d in '%s' (%s)", shown(c), size[c],
          shown(by[c].letters), core.typeof(by[c].x), n, shown(t.letters), core.typeof(t.x))
      end
      if not size[c] or n ~= 1 then size[c], by[c] = n, t end
    end
  end
  return size
end

--- The letters of the result: those given, or without any the bytes of all operands and, sorted, what stands once.
local function result_of(given, list, size, spec)
  local all, bytes = {}, 0
  for i, t in ipairs(list) do
    all[i] = t.letters
    bytes = math.max(bytes, #t.letters:gsub("%a", ""))
  end
  all = table.concat(all)
  if not given then
    local once = {}
    for c in all:gmatch "%a" do
      if select(2, all:gsub(c, "")) == 1 then once[#once + 1] = c end
    end
    table.sort(once)
    return bytes_of(bytes) .. table.concat(once)
  end
  for c in given:gmatch "%a" do
    if not size[c] then raise("E_VALUE", "einsum: '%s' is in no operand", c) end
    if select(2, given:gsub(c, "")) > 1 then
      raise("E_VALUE", "einsum: the result of '%s' has %s twice", spec, c)
    end
  end
  return (given:gsub("%.", bytes_of(bytes)))
end

--- The letters that are among the others, or (`there` false) are not.
local function pick(letters, others, there)
  return (letters:gsub(".", function(c)
    if (others:find(c, 1, true) ~= nil) ~= there then return "" end
  end))
end

--- Where the letters stand within others, and whether they do so in their order.
local function positions(letters, within)
  local list, last, ordered = {}, 0, true
  for i = 1, #letters do
    list[i] = within:find(letters:sub(i, i), 1, true)
    ordered = ordered and list[i] > last
    last = list[i]
  end
  return list, ordered
end

--- An operand with each letter once, and without the dims of size 1 that stretch.
local function plain(t, size)
  for d = #t.letters, 1, -1 do
    local c = t.letters:sub(d, d)
    local first = t.letters:find(c, 1, true)
    if first < d then
      local shape, letters = t.x.shape, t.letters
      if shape[first] ~= shape[d] then
        raise("E_SHAPE", "einsum: '%s' is %d and %d in '%s' (%s)", c, shape[first], shape[d], shown(letters),
          core.typeof(t.x))
      end
      t.x = matrix.diagonal(t.x, 0, first, d)
      t.letters = letters:sub(1, first - 1) .. letters:sub(first + 1, d - 1) .. letters:sub(d + 1) .. c
      return plain(t, size)
    end
  end
  local kept, dims = "", {}
  for d, n in ipairs(t.x.shape) do
    local c = t.letters:sub(d, d)
    if n == size[c] then kept, dims[#dims + 1] = kept .. c, n end
  end
  if #kept < #t.letters then t.x, t.letters = op.reshape(t.x, {dims = dims}), kept end
  return t
end

-- ---- products -----------------------------------------------------------------------------------------------

--- The operand summed over the dims whose letters are not to be kept.
local function sum_out(t, keep)
  local axes = positions(pick(t.letters, keep, false), t.letters)
  if #axes == 0 then return t end
  return {letters = pick(t.letters, keep, true), x = args.as(reduce.sum(t.x, axes), t.x.dtype)}
end

--- The product of two operands, summed over the letters that are not to be kept. Letters of both are batch if
--- they are, else contracted; in the order of the first, which the second is brought to.
local function multiply(t, u, keep, wide)
  t, u = sum_out(t, u.letters .. keep), sum_out(u, t.letters .. keep)
  local a, b, w = t.letters, u.letters, u.x
  local shared, free = pick(a, b, true), pick(a, b, false)
  local batch, contract = pick(shared, keep, true), pick(shared, keep, false)
  local w_batch, batch_ordered = positions(batch, b)
  local w_contract, contract_ordered = positions(contract, b)
  if not (batch_ordered and contract_ordered) then
    local wanted = batch .. contract .. pick(b, shared, false)
    w, b = op.transpose(w, {perm = (positions(wanted, b))}), wanted
    w_batch, w_contract = positions(batch, b), positions(contract, b)
  end
  local y = op.matmul(t.x, w, {x_batch = (positions(batch, a)), w_batch = w_batch,
    x_contract = (positions(contract, a)), w_contract = w_contract, wide = wide or false})
  return {letters = batch .. free .. pick(b, a, false), x = y}
end

--- What operands i and j must keep: the letters of the result and of all others.
local function kept_of(list, i, j, result)
  local words = {result}
  for k, t in ipairs(list) do
    if k ~= i and k ~= j then words[#words + 1] = t.letters end
  end
  return table.concat(words)
end

local function elements(letters, size)
  local n, seen = 1, {}
  for c in letters:gmatch "." do
    if not seen[c] then n, seen[c] = n * size[c], true end
  end
  return n
end

--- The two whose product needs the least room beyond their own; and what they must keep.
local function next_pair(list, size, result)
  if #list == 2 then return 1, 2, result end
  local least, first, second, keep = math.huge, 0, 0, ""
  for i = 1, #list do
    for j = i + 1, #list do
      local a, b, kept = list[i].letters, list[j].letters, kept_of(list, i, j, result)
      local room = elements(pick(a .. b, kept, true), size) - elements(a, size) - elements(b, size)
      if room < least then least, first, second, keep = room, i, j, kept end
    end
  end
  return first, second, keep
end

--- Is there a sum outside of one product of two? It has to be in the dtype of the result.
local function adds_alone(words, given)
  if #words ~= 2 then return true end
  local a, b = words[1], words[2]
  return given ~= nil and pick(pick(a, b, false) .. pick(b, a, false), given, false) ~= ""
end

--- A sum of products of tensors by letters: einsum("btc,vc->btv", x, w). Letters that the result lacks are summed
--- over; one that an operand has twice takes its diagonal; "..." stands for any dims, which align at the end;
--- without "->" the result has what stands once, in alphabetical order. Dims of size 1 stretch.
---@param spec string
---@param x Tensor
---@param ... Tensor behind them {preferred_element_type = dtype}: in which it adds up and comes
---@return Tensor
function M.einsum(spec, x, ...)
  local list, n = {x, ...}, 1 + select("#", ...)
  while n > 1 and list[n] == nil do n = n - 1 end
  local options = n > 1 and type(list[n]) == "table" and not lib.is_tensor(list[n]) and list[n] or nil
  if options then list[n], n = nil, n - 1 end
  local words, given = read(spec, n)
  list = meet("einsum", list)
  local dtype, wide, wanted = args.product_dtypes("einsum", list[1].dtype,
    options and options.preferred_element_type)
  if wanted ~= dtype and adds_alone(words, given) then dtype, wide = wanted, nil end
  for i, word in ipairs(words) do
    local t = args.as(list[i], dtype)
    list[i] = {letters = expanded(word, t), x = dtype == "bool" and args.as(t, "int32") or t}
  end
  local size = sizes_of(list)
  local result = result_of(given, list, size, spec)
  for i, t in ipairs(list) do list[i] = plain(t, size) end
  while #list > 1 do
    local i, j, keep = next_pair(list, size, result)
    local y = multiply(list[i], list[j], keep, wide)
    table.remove(list, j)
    list[i] = y
  end
  local y = sum_out(list[1], result)
  if y.letters ~= result then y.x = op.transpose(y.x, {perm = (positions(result, y.letters))}) end
  return dtype == "bool" and op.ne(y.x, 0) or args.as(y.x, wanted)
end

-- ---- products by words --------------------------------------------------------------------------------------

--- Element by element, of bool what both are.
local function times(x, y)
  if x.dtype == "bool" and y.dtype == "bool" then return op.bitand(x, y) end
  return op.mul(x, y)
end

--- Letters a, b, ... for n dims, after `from` others.
local function letters_of(n, from)
  local list = {}
  for d = 1, n do list[d] = string.char(97 + from + d - 1) end
  return list
end

--- The product over axes of x and as many of y: a number n takes the last n of x and the first n of y (default 2).
---@param x Tensor
---@param y Tensor
---@param axes integer|table? or {axes of x, axes of y}
---@param options {preferred_element_type: string}?
---@return Tensor
function M.tensordot(x, y, axes, options)
  local who = "tensordot"
  local rx, ry = check_tensor(who, x).ndim, check_tensor(who, y).ndim
  local of_x, of_y = {}, {}
  if axes == nil or math.type(axes) == "integer" then
    local n = axes or 2
    if n < 0 or n > math.min(rx, ry) then
      raise("E_SHAPE", "tensordot: %s of %s and %s", lib.count(n, "axis", "axes"), core.typeof(x),
        core.typeof(y))
    end
    for i = 1, n do of_x[i], of_y[i] = rx - n + i, i end
  else
    lib.check_list(who, "axes", axes)
    of_x = type(axes[1]) == "table" and axes[1] or {axes[1]}
    of_y = type(axes[2]) == "table" and axes[2] or {axes[2]}
  end
  if #of_x ~= #of_y then
    raise("E_SHAPE", "tensordot: %s of x and %d of y", lib.count(#of_x, "axis", "axes"), #of_y)
  end
  local a, b = letters_of(rx, 0), letters_of(ry, rx)
  local seen = {}
  for i = 1, #of_x do
    local p, q = args.axis_of(who, of_x[i], rx), args.axis_of(who, of_y[i], ry)
    if seen[p] or b[q] <= string.char(96 + rx) then
      raise("E_SHAPE", "tensordot: an axis is given twice")
    end
    if x.shape[p] ~= y.shape[q] then
      raise("E_SHAPE", "tensordot: axis %d of %s is %d, and axis %d of %s is %d", p, core.typeof(x),
        x.shape[p], q, core.typeof(y), y.shape[q])
    end
    b[q], seen[p] = a[p], true
  end
  a, b = table.concat(a), table.concat(b)
  return M.einsum(a .. "," .. b .. "->" .. pick(a, b, false) .. pick(b, a, false), x, y, options)
end

--- The product of vectors, of matrices, or over the last dim of x and the second last of y, whose other dims stand
--- behind each other; of a scalar with anything.
---@param x Tensor
---@param y Tensor
---@param options {preferred_element_type: string}?
---@return Tensor
function M.dot(x, y, options)
  local rx, ry = check_tensor("dot", x).ndim, check_tensor("dot", y).ndim
  if rx == 0 or ry == 0 then
    local wanted = lib.options("dot", options).preferred_element_type
    return wanted and times(args.as(x, wanted), args.as(y, wanted)) or times(x, y)
  end
  local n, m = x.shape[rx], y.shape[math.max(1, ry - 1)]
  if n ~= m then
    raise("E_SHAPE", "dot: the last dim of %s is %d, the one of %s that meets it %d", core.typeof(x), n,
      core.typeof(y), m)
  end
  return M.tensordot(x, y, {rx, math.max(1, ry - 1)}, options)
end

--- The product of each element of x with each of y: [x.size, y.size].
---@param x Tensor
---@param y Tensor
---@return Tensor
function M.outer(x, y)
  x = op.reshape(x, {dims = {check_tensor("outer", x).size, 1}})
  return times(x, op.reshape(y, {dims = {check_tensor("outer", y).size}}))
end

--- Kronecker's product: each element of x times all of y, in its place.
---@param x Tensor
---@param y Tensor
---@return Tensor
function M.kron(x, y)
  local rank = math.max(check_tensor("kron", x).ndim, check_tensor("kron", y).ndim)
  local a, b, dims = {}, {}, {}
  for d = 1, rank do
    local i, j = d - rank + x.ndim, d - rank + y.ndim
    local n, m = i > 0 and x.shape[i] or 1, j > 0 and y.shape[j] or 1
    a[2 * d - 1], a[2 * d], b[2 * d - 1], b[2 * d], dims[d] = n, 1, 1, m, n * m
  end
  return op.reshape(times(op.reshape(x, {dims = a}), op.reshape(y, {dims = b})), {dims = dims})
end

return M
