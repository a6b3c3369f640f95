-- picture.lua: the picture of the README. It runs a program on eight devices, and draws its mesh, where its tensors
-- lie, and the plan that was made of it, all as the library tells it:
--   build/meshlua --devices=8 docs/picture.lua > docs/picture.svg
local ml = require "meshlua"

local program = [[
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local function ones(shape, spec)
  return ml.device_put(ml.ones(shape), NamedSharding(mesh, spec))
end

local x    = ones({32, 128}, P("data", nil))
local up   = ones({128, 512}, P(nil, "model"))
local down = ones({512, 128}, P("model", nil))

local mlp = ml.jit(function(x, up, down)
  return nn.gelu(x:matmul(up)):matmul(down)
end)]]

local env = {ml = ml, nn = ml.nn, P = ml.P, NamedSharding = ml.NamedSharding}
local chunk = assert(load(program .. "\nreturn mesh, x, up, down, mlp", "@mlp.lua", "t", env))
local mesh, x, up, down, mlp = chunk()
local y, plan = mlp(x, up, down), mlp:plan(x, up, down)

-- ---- drawing ------------------------------------------------------------------------------------------

local WIDTH, MARGIN, LINE, LETTER = 940, 24, 18, 7.3
local out = {}

local function escaped(text)
  return (text:gsub("[&<>]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;"}))
end

local function text(left, top, words, class, anchor)
  class = class and (' class="%s"'):format(class) or ""
  anchor = anchor and (' text-anchor="%s"'):format(anchor) or ""
  out[#out + 1] = ('<text x="%g" y="%g"%s%s>%s</text>'):format(left, top, class, anchor, escaped(words))
end

local function box(left, top, width, height, fill, class)
  out[#out + 1] = ('<rect x="%g" y="%g" width="%g" height="%g" fill="%s" class="%s"/>'):format(left, top,
    width, height, fill, class)
end

-- ---- devices and what they hold -----------------------------------------------------------------------

--- The place of each device along data and model, from 0.
local place = {}
for i, row in ipairs(mesh.devices) do
  for j, id in ipairs(row) do place[id] = {i - 1, j - 1} end
end

--- The coordinate along an axis that all these devices share; nil where they differ.
local function shared(ids, axis)
  local at = place[ids[1]][axis]
  for _, id in ipairs(ids) do
    if place[id][axis] ~= at then return nil end
  end
  return at
end

--- The place along model gives the hue, that along data how dark; what lies everywhere is white.
local function colour(ids)
  local data, model = shared(ids, 1), shared(ids, 2)
  if not data and not model then return "#ffffff" end
  local hue = model and (model == 0 and "210,75%" or "28,90%") or "0,0%"
  return ("hsl(%s,%d%%)"):format(hue, data and 62 + 9 * data or 76)
end

--- "0 2 4 6", the devices of a block.
local function ids_text(ids)
  table.sort(ids)
  return table.concat(ids, " ")
end

--- A list without what is in it already.
local function distinct(list)
  local kept, seen = {}, {}
  for _, item in ipairs(list) do
    if not seen[item] then kept[#kept + 1] = item end
    seen[item] = true
  end
  return kept
end

--- A tensor as its blocks with the devices of each; returns the bottom.
local function draw_tensor(name, t, left, top, width, height)
  text(left, top, name, "name")
  text(left, top + LINE, ml.typeof(t))
  local rows, columns = t.shape[1], t.shape[2]
  local blocks, order = {}, {}
  for _, shard in ipairs(t:addressable_shards()) do
    local r, c = shard.index[1], shard.index[2]
    local key = r[1] .. "," .. c[1]
    if not blocks[key] then
      blocks[key] = {r = r, c = c, ids = {}}
      order[#order + 1] = blocks[key]
    end
    table.insert(blocks[key].ids, shard.device)
  end
  top = top + LINE + 10
  for _, block in ipairs(order) do
    local r, c = block.r, block.c
    local x0, y0 = left + (c[1] - 1) * width / columns, top + (r[1] - 1) * height / rows
    local w, h = (c[2] - c[1] + 1) * width / columns, (r[2] - r[1] + 1) * height / rows
    box(x0, y0, w, h, colour(block.ids), "block")
    text(x0 + w / 2, y0 + h / 2 + 4, ids_text(block.ids), "id", "middle")
  end
  return top + height
end

local function draw_mesh(left, top)
  text(left, top, "the mesh", "name")
  text(left, top + LINE, "8 devices: data=4, model=2")
  local wide, high = 56, 30
  top = top + LINE + 10
  for i, row in ipairs(mesh.devices) do
    for j, id in ipairs(row) do
      box(left + (j - 1) * wide, top + (i - 1) * high, wide, high, colour {id}, "block")
      text(left + (j - 0.5) * wide, top + (i - 0.5) * high + 4, tostring(id), "id", "middle")
    end
  end
end

-- ---- the plan -----------------------------------------------------------------------------------------

local function types_text(operands)
  local list = {}
  for i, o in ipairs(operands) do list[i] = ("%s[%s]"):format(o.dtype, table.concat(o.shape, ",")) end
  return table.concat(list, " ")
end

--- "argument up and argument down": who split what is added up.
local function split_by(reason)
  local names = {}
  for _, o in ipairs(reason.origins) do names[#names + 1] = o.kind .. " " .. o.name end
  return table.concat(distinct(names), " and ")
end

local function draw_plan(top)
  text(MARGIN, top, "the plan that was made of it: what each device does, in its own shapes", "name")
  top = top + 10
  for i, step in ipairs(plan:steps()) do
    local what = step.axes and step.op .. " over " .. table.concat(step.axes, ",")
      or #step.ops > 0 and ("fused(%s)"):format(table.concat(distinct(step.ops), " ")) or step.kernel
    local high = step.axes and LINE * 4 + 4 or LINE + 6
    box(MARGIN, top, WIDTH - 2 * MARGIN, high, step.axes and "#fff3d6" or "#f4f4f4", "step")
    local y0 = top + LINE
    text(MARGIN + 10, y0, tostring(i))
    text(MARGIN + 32, y0, what, step.axes and "name" or nil)
    text(MARGIN + 214, y0, types_text(step.inputs) .. " -> " .. types_text(step.outputs))
    text(WIDTH - MARGIN - 10, y0, table.concat(distinct(step.where), ", "), nil, "end")
    if step.axes then
      local reason = step.reasons[1]
      text(MARGIN + 32, y0 + LINE, ("sends %d bytes: %s"):format(step.sent, reason.tensor))
      text(MARGIN + 32, y0 + 2 * LINE, "because " .. reason.text)
      text(MARGIN + 32, y0 + 3 * LINE, "they are split by " .. split_by(reason))
    end
    top = top + high + 4
  end
  return top
end

-- ---- the page -----------------------------------------------------------------------------------------

local top = MARGIN + 8
text(MARGIN, top, "mlp.lua", "name")
local n = 0
for line in (program .. "\n"):gmatch "(.-)\n" do
  n = n + 1
  text(MARGIN + 18, top + n * LINE, tostring(n), "number", "end")
  text(MARGIN + 30, top + n * LINE, line)
end
draw_mesh(WIDTH - MARGIN - 176, top)

top = top + (n + 2) * LINE
local left = MARGIN
local sizes = {{"x", x, 96, 128}, {"up", up, 250, 96}, {"down", down, 96, 200},
  {"y = mlp(x, up, down)", y, 96, 128}}
local bottom = top
for _, t in ipairs(sizes) do
  bottom = math.max(bottom, draw_tensor(t[1], t[2], left, top, t[3], t[4]))
  left = left + math.max(t[3], LETTER * #ml.typeof(t[2]), LETTER * #t[1]) + 34
end
text(MARGIN, bottom - LINE, "in a block: the devices that hold it", "number")
text(MARGIN, bottom, "shades: the place along data; colours: along model", "number")
bottom = draw_plan(bottom + 2 * LINE)

print(([[
<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" width="%d" height="%d" viewBox="0 0 %d %d"
  font-family="monospace" font-size="12">
<style>
text { fill: #1f2328 }
.name { font-weight: bold }
.number { fill: #8b949e }
.id { font-size: 11px }
.block { stroke: #57606a }
.step { stroke: #d0d7de }
</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s
</svg>]]):format(WIDTH, bottom + MARGIN // 2, WIDTH, bottom + MARGIN // 2, table.concat(out, "\n")))
