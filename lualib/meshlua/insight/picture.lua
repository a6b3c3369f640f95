-- picture.lua: where the shards of a tensor lie, and which device stands where in a mesh: as boxes in the
-- terminal, in colour where it has any, and as SVG.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

local MAX_SLICES = 16 -- pictures of a tensor of rank 3 and more

-- ---- what lies where ----------------------------------------------------------------------------------

local function sorted(set)
  local list = {}
  for k in pairs(set) do list[#list + 1] = k end
  table.sort(list)
  return list
end

--- Which devices hold which block: {starts (per dim: the first indices of its blocks, ascending), ends (per dim:
--- start -> last index), cells ("s1,s2,..." -> {ids, number})}. Blocks are numbered row-major from 1.
local function blocks_of(x)
  local b = {starts = {}, ends = {}, cells = {}, shape = x.shape}
  for d = 1, x.ndim do b.starts[d], b.ends[d] = {}, {} end
  for _, shard in ipairs(x:addressable_shards()) do
    local key = {}
    for d, range in ipairs(shard.index) do
      b.starts[d][range[1]], b.ends[d][range[1]], key[d] = true, range[2], range[1]
    end
    key = table.concat(key, ",")
    b.cells[key] = b.cells[key] or {ids = {}}
    table.insert(b.cells[key].ids, shard.device)
  end
  for d = 1, x.ndim do b.starts[d] = sorted(b.starts[d]) end
  local n = 0
  local function number(d, key)
    if d > x.ndim then
      local cell = b.cells[table.concat(key, ",")]
      n = n + 1
      if cell then
        cell.number = n
        table.sort(cell.ids)
      end
      return
    end
    for _, start in ipairs(b.starts[d]) do
      key[d] = start
      number(d + 1, key)
      key[d] = nil
    end
  end
  number(1, {})
  b.count = n
  return b
end

local function cell_text(cell) return "CPU " .. table.concat(cell and cell.ids or {}, ",") end

--- The cells of the last two dims (one row for rank 1, one cell for rank 0) at the starts `lead` of the dims
--- before them: a list of rows of cells.
local function grid_at(b, lead)
  local rank = #b.shape
  local rows = {}
  for i, row in ipairs(rank > 1 and b.starts[rank - 1] or {false}) do
    rows[i] = {}
    for j, column in ipairs(rank > 0 and b.starts[rank] or {false}) do
      local key = table.move(lead, 1, #lead, 1, {})
      if row then key[#key + 1] = row end
      if column then key[#key + 1] = column end
      rows[i][j] = b.cells[table.concat(key, ",")]
    end
  end
  return rows
end

--- Every combination of blocks of the dims before the last two: a list of lists of starts.
local function leads_of(b)
  local leads = {{}}
  for d = 1, #b.shape - 2 do
    local longer = {}
    for _, lead in ipairs(leads) do
      for _, start in ipairs(b.starts[d]) do
        local copy = table.move(lead, 1, #lead, 1, {})
        copy[d] = start
        longer[#longer + 1] = copy
      end
    end
    leads = longer
  end
  return leads
end

--- "[1..2, 1..4, :, :]"
local function lead_text(b, lead)
  local words = {}
  for d, start in ipairs(lead) do words[d] = ("%d..%d"):format(start, b.ends[d][start]) end
  return "[" .. table.concat(words, ", ") .. ", :, :]"
end

-- ---- in the terminal ----------------------------------------------------------------------------------

--- Dark letters on a light ground of its own for each block, from the 6x6x6 cube of 256 colours.
local function painted(text, number)
  local h = (number - 1) * 7 % 27
  local colour = 16 + 36 * (3 + h // 9) + 6 * (3 + h // 3 % 3) + 3 + h % 3
  return ("\27[48;5;%dm\27[38;5;16m%s\27[0m"):format(colour, text)
end

--- Boxes of one row each for a list of rows of cells.
local function boxes(rows, colour)
  local width = 9
  for _, row in ipairs(rows) do
    for _, cell in ipairs(row) do width = math.max(width, #cell_text(cell) + 2) end
  end
  local function line(left, middle, right, n)
    local cells = {}
    for i = 1, n do cells[i] = string.rep("─", width) end
    return left .. table.concat(cells, middle) .. right
  end
  local out, n = {}, #rows[1]
  out[1] = line("┌", "┬", "┐", n)
  for r, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      local text = cell_text(cell)
      local space = width - #text
      text = string.rep(" ", space // 2) .. text .. string.rep(" ", space - space // 2)
      cells[i] = colour and cell.number and painted(text, cell.number) or text
    end
    out[#out + 1] = "│" .. table.concat(cells, "│") .. "│"
    out[#out + 1] = r < #rows and line("├", "┼", "┤", n) or line("└", "┴", "┘", n)
  end
  return table.concat(out, "\n")
end

--- A line for each dim: its size, the mesh axes that split it, and into what.
local function dims_table(x, b)
  local lines, spec = {}, x.sharding.spec
  for d, size in ipairs(x.shape) do
    local axes, parts = spec and spec[d], #b.starts[d]
    if type(axes) == "table" then axes = table.concat(axes, ",") end
    lines[d] = parts == 1 and ("dim %d: %d, whole"):format(d, size)
      or ("dim %d: %d over %s, %d blocks of %d"):format(d, size, tostring(axes), parts, b.ends[d][1])
  end
  return lines
end

--- The shards of a tensor as boxes with the devices that hold them, as text. A tensor of rank 3 and more is
--- told dim by dim, and drawn for each block of the dims before its last two.
---@param x Tensor
---@param colour boolean? paint every block in a colour of its own
---@return string
function M.sharding_text(x, colour)
  if not lib.is_tensor(x) then
    raise("E_VALUE", "visualize_sharding: expected a tensor, got %s", lib.kind(x))
  end
  if core.is_box(x) then x = x:get() or lib.raise("E_STATE", "visualize_sharding: the Param is empty") end
  if core.is_traced(x) then return core.typeof(x) end -- where it lies is not known yet
  local b = blocks_of(x)
  if x.ndim <= 2 then return boxes(grid_at(b, {}), colour) end
  local lines = dims_table(x, b)
  table.insert(lines, 1, core.typeof(x))
  local leads = leads_of(b)
  for i = 1, math.min(#leads, MAX_SLICES) do
    lines[#lines + 1] = lead_text(b, leads[i])
    lines[#lines + 1] = boxes(grid_at(b, leads[i]), colour)
  end
  if #leads > MAX_SLICES then lines[#lines + 1] = ("and %d more"):format(#leads - MAX_SLICES) end
  return table.concat(lines, "\n")
end

-- ---- SVG ----------------------------------------------------------------------------------------------

local CELL_HEIGHT, CHARACTER, GAP = 36, 8, 24

local function escaped(text) return (text:gsub("[&<>\"]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
  ['"'] = "&quot;"})) end

local function text_at(x, y, text, anchor)
  return ('<text x="%d" y="%d" text-anchor="%s">%s</text>'):format(x, y, anchor, escaped(text))
end

--- Appends the grid with its upper left corner at (left, top); returns its width and height.
local function add_grid(out, rows, left, top, count)
  local width = 9
  for _, row in ipairs(rows) do
    for _, cell in ipairs(row) do width = math.max(width, #cell_text(cell) + 2) end
  end
  width = width * CHARACTER
  for i, row in ipairs(rows) do
    for j, cell in ipairs(row) do
      local x, y = left + (j - 1) * width, top + (i - 1) * CELL_HEIGHT
      local hue = cell and (cell.number - 1) * 360 // count or 0
      out[#out + 1] = ('<rect x="%d" y="%d" width="%d" height="%d" fill="hsl(%d,65%%,82%%)"/>'):format(x, y,
        width, CELL_HEIGHT, hue)
      out[#out + 1] = text_at(x + width // 2, y + CELL_HEIGHT // 2 + 5, cell_text(cell), "middle")
    end
  end
  return #rows[1] * width, #rows * CELL_HEIGHT
end

--- The same picture as an SVG document.
---@param x Tensor
---@return string
local function svg_of(x)
  local b, out = blocks_of(x), {}
  local y, wide = GAP, 0
  local function heading(text)
    out[#out + 1] = text_at(GAP, y + 12, text, "start")
    y, wide = y + 24, math.max(wide, #text * CHARACTER)
  end
  heading(core.typeof(x) .. " on " .. tostring(x.sharding.mesh or "one device"):gsub(" of devices.*", ""))
  if x.ndim > 2 then
    for _, line in ipairs(dims_table(x, b)) do heading(line) end
  end
  for _, lead in ipairs(leads_of(b)) do
    if x.ndim > 2 then heading(lead_text(b, lead)) end
    local width, height = add_grid(out, grid_at(b, lead), GAP, y, b.count)
    y, wide = y + height + GAP, math.max(wide, width)
  end
  local head = ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" '
    .. 'font-size="13">\n<rect width="100%%" height="100%%" fill="white"/>\n<g stroke="none" fill="black">')
    :format(wide + 2 * GAP, y)
  local body = table.concat(out, "\n"):gsub("<rect ([^/]*)/>", '<rect %1 stroke="#444"/>')
  return head .. "\n" .. body .. "\n</g>\n</svg>\n"
end

-- ---- the functions ------------------------------------------------------------------------------------

--- Prints the shards of a tensor as boxes with the devices that hold them: for rank 3 and more a line for each
--- dim, and the boxes of the last two dims for each block of those before. In colour on a terminal, unless
--- NO_COLOR is set. With `file` an SVG document is written instead. A traced tensor is told by its type.
---@param x Tensor
---@param options {file: string?}?
---@return true? written (with `file`)
---@return string? message where the file cannot be written
---@return string? code
function M.visualize_sharding(x, options)
  options = lib.options("visualize_sharding", options)
  if not options.file then
    print(M.sharding_text(x, core.has_colour ~= nil and core.has_colour "stdout"))
    return
  end
  if not lib.is_tensor(x) then
    raise("E_VALUE", "visualize_sharding: expected a tensor, got %s", lib.kind(x))
  end
  if core.is_traced(x) then
    raise("E_TRACED", "visualize_sharding: where a traced tensor lies is not known yet; draw the result")
  end
  local text = svg_of(core.is_box(x) and x:get() or x)
  local file, message = io.open(options.file, "w")
  if not file then return nil, message, "E_IO" end
  local written, why = file:write(text)
  local closed, why_not = file:close()
  if not written or not closed then return nil, why or why_not, "E_IO" end
  return true
end

--- Prints which device stands where in a mesh of any rank.
function M.visualize_mesh(mesh)
  if not core.is_mesh(mesh) then
    raise("E_VALUE", "visualize_mesh: expected a Mesh, got %s", lib.kind(mesh))
  end
  print("Mesh shape: (" .. table.concat(mesh.axis_sizes, ", ") .. ")")
  print("Axis names: " .. table.concat(mesh.axis_names, ", "))
  print("Device layout:")
  local function go(node, index)
    if type(node) ~= "table" then
      print(string.format("  [%s]: CPU %d", table.concat(index, ","), node))
      return
    end
    for i, child in ipairs(node) do
      index[#index + 1] = i
      go(child, index)
      index[#index] = nil
    end
  end
  go(mesh.devices, {})
end

return lib.export(M, "", true)
