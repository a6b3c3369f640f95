-- random_map.lua: maps in plain Lua, on lists of numbers, and random ones; for the specs of this folder.
local lib = require "meshlua.lib"
local view = require "meshlua.checkpoint.view"

local product = lib.product

local M = {}

--- Calls visit(place in the tensor, place in the entry) for each element of a piece in a tensor of this shape.
function M.each(piece, shape, visit)
  local strides, stride = {}, 1
  for d = #shape, 1, -1 do strides[d], stride = stride, stride * shape[d] end
  local factors, inner = {}, {}
  for d = 1, #shape do inner[d] = 1 end
  for k = #piece.factors, 1, -1 do -- a factor's stride in the tensor
    local d, size, there = table.unpack(piece.factors[k])
    factors[k] = {size, inner[d] * strides[d], there}
    inner[d] = inner[d] * size
  end
  local from = 0
  for d = 1, #shape do
    assert(product(piece.size) == 0 or inner[d] == piece.size[d], "factors are not the size")
    from = from + piece.at[d] * strides[d]
  end
  local function go(k, here, there)
    if k > #factors then return visit(here, there) end
    for i = 0, factors[k][1] - 1 do go(k + 1, here + i * factors[k][2], there + i * factors[k][3]) end
  end
  if product(piece.size) > 0 then go(1, from, piece.offset) end
end

--- The data of the entries that a map makes of tensors: path -> {shape =, data...}.
function M.written(m, tensors)
  local leaves = {}
  for path, t in pairs(tensors) do leaves[#leaves + 1] = {path = path, shape = t.shape, dtype = "float32"} end
  table.sort(leaves, function(a, b) return a.path < b.path end)
  local entries, pieces, problems, unmatched = m:write(leaves)
  assert(#problems == 0 and #unmatched == 0, problems[1] or unmatched[1])
  local files = {}
  for _, entry in ipairs(entries) do files[entry.name] = {name = entry.name, shape = entry.shape} end
  for k, leaf in ipairs(leaves) do
    for _, piece in ipairs(pieces[k]) do
      M.each(piece, leaf.shape, function(here, there)
        assert(files[piece.name][there + 1] == nil, "written twice")
        files[piece.name][there + 1] = tensors[leaf.path][here + 1]
      end)
    end
  end
  return files
end

--- Verbs that make a tensor of this shape, found backwards: what each makes of the shape is the next one's.
function M.chain(random, shape)
  local chain, from = {}, {table.unpack(shape)}
  for _ = 1, random(0, 4) do
    local d = random(1, #from)
    local kind = random(1, 5)
    local verb
    if kind == 1 then
      local order, rest = {}, {}
      for k = 1, #from do rest[k] = k end
      while #rest > 0 do order[#order + 1] = table.remove(rest, random(1, #rest)) end
      verb = {"transpose", random(1, 3) > 1 and order or nil}
    elseif kind == 2 and #from > 1 then
      local to = {table.unpack(from)}
      local merged = {table.unpack(from)}
      local at = random(1, #from - 1)
      merged[at] = merged[at] * table.remove(merged, at + 1)
      if random(1, 2) == 1 then
        verb = {"reshape", to, merged}
      else
        to[at + 1] = -1
        verb = {"reshape", to}
      end
    elseif kind == 3 and from[d] % 2 == 0 then
      local heads = from[d] % 4 == 0 and random(1, 2) or 1
      verb = {"heads", d, heads, random(1, 2) == 1 and "halves" or "interleaved"}
    elseif kind == 4 and from[d] % 2 == 0 and #from < 5 then
      local cut = {table.unpack(from)}
      cut[d] = from[d] // 2
      table.insert(cut, d, 2)
      verb = {"reshape", from, cut}
    end
    if verb then
      local step = {verb = verb[1], args = {table.unpack(verb, 2)}}
      local before = view.backward({step}, from)
      if before then
        table.insert(chain, 1, verb)
        from = before
      end
    end
  end
  return chain, from
end

return M
