-- compare.lua: a tensor beside what a peer made: shape, dtype, and each element.
local ml = require "meshlua"

local formats = {bool = "B", uint8 = "B", uint16 = "I2", uint32 = "I4", uint64 = "I8", int8 = "b",
  int16 = "i2", int32 = "i4", int64 = "i8", float32 = "f",
  float64 = "d"}
local AT_ONCE = 100

--- The elements as Lua numbers.
local function numbers(x)
  if not formats[x.dtype] then x = ml.astype(x, "float32") end
  local format, bytes, list, at = formats[x.dtype], x:bytes(), {}, 1
  local left = x.size
  while left > 0 do
    local n = math.min(left, AT_ONCE)
    local got = {string.unpack("<" .. format:rep(n), bytes, at)}
    at, left = got[n + 1], left - n
    table.move(got, 1, n, #list + 1, list)
  end
  return list
end

--- The largest finite size.
local function largest(list)
  local most = 0
  for _, v in ipairs(list) do
    local size = v < 0 and -v or v
    if size > most and size < math.huge then most = size end
  end
  return most
end

--- Raises where a tensor is not what a peer has.
---@param what string "result" or "gradient"
---@param got Tensor
---@param want Tensor
---@param case table rtol, atol; scale: the largest element counts, too; check: "value" leaves the dtype out
---@param slack number times the tolerance
local function compare(what, got, want, case, slack)
  if not ml.tree.is_leaf(got) then error(("%s: a %s, not a tensor"):format(what, type(got)), 0) end
  local a, b = table.concat(got.shape, ","), table.concat(want.shape, ",")
  if a ~= b then error(("%s: shape {%s}, not {%s}"):format(what, a, b), 0) end
  if got.dtype ~= want.dtype and case.check ~= "value" then
    error(("%s: dtype %s, not %s"):format(what, got.dtype, want.dtype), 0)
  end
  local x, y = numbers(got), numbers(want)
  local rtol, atol = case.rtol * slack, case.atol * slack
  if case.scale or slack > 1 then atol = atol + rtol * largest(y) end
  local wrong, first = 0, nil
  for i = 1, #y do
    local p, q = x[i], y[i]
    if p ~= q and not (p ~= p and q ~= q) then
      local gap, size = p - q, q < 0 and -q or q
      if gap < 0 then gap = -gap end
      if not (gap <= atol + rtol * size) or size == math.huge then
        wrong = wrong + 1
        first = first or ("%s, not %s, at %d"):format(p, q, i)
      end
    end
  end
  if wrong > 0 then error(("%s: %d of %d elements: %s"):format(what, wrong, #y, first), 0) end
end

return compare
