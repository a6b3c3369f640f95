-- printing.lua: the elements of tensors as text, by numpy's rules: columns of one width, the shortest digits that say
-- which number it is (at most `precision` behind the point), exponents for all or for none, the corners of what is
-- large. Ops are never called, so that a tensor prints in a trace as well; what is read is what is printed.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

--- What holds where nothing else is said; numpy's, but for the names.
local defaults = {precision = 8, threshold = 1000, edge_items = 3, width = 75, suppress = false, sign = "-",
  float_mode = "maxprec"}
local least = {precision = 0, threshold = 0, edge_items = 1, width = 1, items = 1}
local MOST_PRECISION = 99 -- of string.format

local format, rep, is_finite = string.format, string.rep, lib.is_finite

-- ---- digits -----------------------------------------------------------------------------------------

---@class FloatKind
---@field bits integer of the significand
---@field least integer exponent of the smallest normal number
---@field safe integer so many digits are never more than are needed, but for zeros and numbers below the normal ones
---@field most integer so many digits always suffice
---@field cutoff number from here on exponents are written

---@type table<string, FloatKind>
local kinds = {
  float64 = {bits = 53, least = -1022, safe = 15, most = 17, cutoff = 1e8},
  float32 = {bits = 24, least = -126, safe = 6, most = 9, cutoff = 1e6},
  float16 = {bits = 11, least = -14, safe = 3, most = 5, cutoff = 1e3},
  float8_e4m3fn = {bits = 4, least = -6, safe = 1, most = 3, cutoff = 1e3},
  float8_e5m2 = {bits = 3, least = -14, safe = 1, most = 2, cutoff = 1e3},
  bfloat16 = {bits = 8, least = -126, safe = 2, most = 4, cutoff = 1e3},
}

local as_exponent, as_fraction = {}, {} -- formats by the digits behind the point
for n = 0, MOST_PRECISION do as_exponent[n], as_fraction[n] = "%#." .. n .. "e", "%#." .. n .. "f" end

--- How far x > 0 is from the next number of its dtype, and whether it is a power of two: below it they are twice as
--- near.
local function spacing(x, kind)
  local e = math.floor(math.log(x, 2))
  if 2.0 ^ e > x then e = e - 1 elseif 2.0 ^ (e + 1) <= x then e = e + 1 end
  return 2.0 ^ (math.max(e, kind.least) - kind.bits + 1), e > kind.least and 2.0 ^ e == x
end

--- x > 0 as the nearest number of a dtype.
local function rounded(x, kind)
  if kind.bits == 53 or x == math.huge then return x end
  local gap = spacing(x, kind)
  return (x / gap + 0x1p52 - 0x1p52) * gap
end

--- Is x the number of its dtype that is nearest to y?
local function identifies(y, x, kind)
  if kind.bits == 53 then return y == x end
  if kind.bits == 24 then return string.pack("<f", y) == string.pack("<f", x) end
  local gap, is_power = spacing(x, kind)
  local half, off = gap / 2, y - x
  if off < 0 then half, off = is_power and half / 2 or half, -off end
  return off < half or off == half and x / gap % 2 == 0
end

--- The shortest digits that say which number x > 0 is, without zeros at their end, and the exponent of the first.
local function shortest(x, kind)
  if x < kind.cutoff and x == math.floor(x) then
    local text = format("%d", x)
    return (text:gsub("0+$", "")), #text - 1
  end
  for n = x < 2.0 ^ kind.least and 1 or kind.safe, kind.most do
    local text = format(as_exponent[n - 1], x)
    local e = tonumber(text:match "e(.*)$", 10) or 0
    local m = math.tointeger(tonumber((text:match("^[^e]*"):gsub("%D", ""))))
    local found = identifies(tonumber(text), x, kind)
    if not found and select(2, spacing(x, kind)) then -- a power of two: above it is room for what is not nearest
      m = m + 1
      found = identifies(tonumber(format("%de%d", m, e - n + 1)), x, kind)
    end
    if found or n == kind.most then
      local digits = format("%d", m)
      return (digits:gsub("0+$", "")), e + #digits - n
    end
  end
end

--- |x| in the form 123.45 with the shortest digits, or with `precision` behind the point where these are more. The
--- point is there; zeros at the end are not.
local function positional(x, kind, precision)
  if x == 0 then return "0." end
  local digits, e = shortest(x, kind)
  if precision and #digits - 1 - e > precision then
    return (format(as_fraction[precision], x):gsub("0+$", ""))
  end
  if e < 0 then return "0." .. rep("0", -1 - e) .. digits end
  if #digits <= e then return digits .. rep("0", e + 1 - #digits) .. "." end
  return digits:sub(1, e + 1) .. "." .. digits:sub(e + 2)
end

--- The same in the form 1.2345e+02.
local function scientific(x, kind, precision)
  if x == 0 then return "0.e+00" end
  local digits, e = shortest(x, kind)
  if precision and #digits - 1 > precision then
    return (format(as_exponent[precision], x):gsub("0*e", "e"))
  end
  return format("%s.%se%s%02d", digits:sub(1, 1), digits:sub(2), e < 0 and "-" or "+", math.abs(e))
end

-- ---- columns ----------------------------------------------------------------------------------------

--- "-", "+" or "": what stands in front of a number.
local function sign_of(x, options)
  if x < 0 or x == 0 and 1 / x < 0 then return "-" end
  return options.sign == "+" and "+" or ""
end

--- Are they written with exponents? The bounds are those of the dtype.
local function wants_exponents(list, kind, suppress)
  local largest, smallest = 0, math.huge
  for _, x in ipairs(list) do
    x = math.abs(x)
    if x ~= 0 then largest, smallest = math.max(largest, x), math.min(smallest, x) end
  end
  if largest == 0 then return false end
  return largest >= kind.cutoff or not suppress and (smallest < rounded(0.0001, kind)
    or rounded(largest / smallest, kind) > 1000)
end

--- Texts of finite numbers, each {sign and whole part, fraction and exponent}: with exponents.
local function with_exponents(list, kind, options, precision)
  local parts, digits, width = {}, options.float_mode == "fixed" and precision or 0, 2
  local own = {}
  for i, x in ipairs(list) do
    own[i] = scientific(math.abs(x), kind, precision)
    local fraction, exponent = own[i]:match "%.(%d*)e.(%d+)"
    digits, width = math.max(digits, #fraction), math.max(width, #exponent)
  end
  for i, x in ipairs(list) do
    local text = own[i]
    if #text:match "%.(%d*)" ~= digits then text = format(as_exponent[digits], math.abs(x)) end
    local whole, rest, mark, exponent = text:match "^(%d)(%.%d*e)(.)(%d+)$"
    parts[i] = {sign_of(x, options) .. whole, rest .. mark .. rep("0", width - #exponent) .. exponent}
  end
  return parts
end

local function without_exponents(list, kind, options, precision)
  local parts, digits = {}, 0
  for i, x in ipairs(list) do
    local text = options.float_mode == "fixed" and format(as_fraction[precision], math.abs(x))
      or positional(math.abs(x), kind, precision)
    local whole, fraction = text:match "^(%d+)(%.%d*)$"
    parts[i], digits = {sign_of(x, options) .. whole, fraction}, math.max(digits, #fraction - 1)
  end
  for i, x in ipairs(options.float_mode == "maxprec_equal" and list or {}) do
    parts[i][2] = format(as_fraction[digits], math.abs(x)):match "%..*"
  end
  return parts
end

--- The finite numbers of a list; whether any is negative; whether minus infinity is in the list.
local function finite_of(list)
  local finite, negative, below = {}, false, false
  for _, x in ipairs(list) do
    if is_finite(x) then
      finite[#finite + 1] = x
      negative = negative or sign_of(x, defaults) == "-"
    end
    below = below or x == -math.huge
  end
  return finite, negative, below
end

--- Floats as words of one width.
local function float_words(list, kind, options)
  local precision = options.float_mode ~= "unique" and options.precision or nil
  local finite, negative, below = finite_of(list)
  local write = wants_exponents(finite, kind, options.suppress) and with_exponents or without_exponents
  local parts, left, right = write(finite, kind, options, precision), 0, 1
  for _, part in ipairs(parts) do left, right = math.max(left, #part[1]), math.max(right, #part[2]) end
  if options.sign == " " and not negative then left = left + 1 end
  if #finite < #list then
    left = math.max(left, 3 - right, 3 + ((options.sign ~= "-" or below) and 1 or 0) - right)
  end
  local words, next_part = {}, 0
  for i, x in ipairs(list) do
    local word
    if is_finite(x) then
      next_part = next_part + 1
      local part = parts[next_part]
      word = rep(" ", left - #part[1]) .. part[1] .. part[2] .. rep(" ", right - #part[2])
    else
      word = x ~= x and (options.sign == "+" and "+nan" or "nan") or sign_of(x, options) .. "inf"
      word = rep(" ", left + right - #word) .. word
    end
    words[i] = word
  end
  return words
end

--- A whole number; of uint64 those below 0 are bits.
local function digits_of(x, dtype)
  if dtype ~= "uint64" or x >= 0 then return format("%d", x) end
  local tens = (x >> 1) // 5
  return format("%d%d", tens, x - tens * 10)
end

local function integer_words(list, dtype, options)
  local words, width = {}, 0
  for i, x in ipairs(list) do
    words[i] = (x >= 0 and options.sign == "+" and "+" or "") .. digits_of(x, dtype)
    width = math.max(width, #words[i])
  end
  if options.sign == " " and #list > 0 and math.min(table.unpack(list, 1, 1)) >= 0 then
    local lowest, highest = math.huge, -math.huge
    for _, x in ipairs(list) do lowest, highest = math.min(lowest, x), math.max(highest, x) end
    if lowest >= 0 then width = math.max(width, #format("%d", highest) + 1) end
  end
  for i, word in ipairs(words) do words[i] = rep(" ", width - #word) .. word end
  return words
end

local function words_of(list, dtype, options)
  if kinds[dtype] then return float_words(list, kinds[dtype], options) end
  if dtype ~= "bool" then return integer_words(list, dtype, options) end
  local words = {}
  for i, x in ipairs(list) do words[i] = x and " true" or "false" end
  return words
end

--- The only element of a tensor without dims.
local function scalar_text(x, dtype)
  local kind = kinds[dtype]
  if not kind then return dtype == "bool" and tostring(x) or digits_of(x, dtype) end
  if not is_finite(x) then return x ~= x and "nan" or x < 0 and "-inf" or "inf" end
  local size, sign = math.abs(x), sign_of(x, defaults)
  if size ~= 0 and (size >= (kind.bits == 53 and 1e16 or kind.cutoff) or size < 0.0001) then
    return sign .. scientific(size, kind):gsub("%.e", "e")
  end
  return sign .. positional(size, kind):gsub("%.$", ".0")
end

-- ---- rows -------------------------------------------------------------------------------------------

local ELLIPSIS = "…" -- one column

---@class Rows
---@field words string[] of what is shown, row-major
---@field at integer the last word taken
---@field shape integer[]
---@field edge integer? of long dims only so many at each end; nil: all
---@field lines string[]

--- Adds a word to the line under way, or to a new one where it has no room. Returns the line.
local function extend(rows, line, columns, word, word_columns, width, indent)
  if columns + word_columns > width and columns > indent then
    rows.lines[#rows.lines + 1] = line:gsub(" +$", "")
    return rep(" ", indent) .. word, indent + word_columns
  end
  return line .. word, columns + word_columns
end

--- The words of the last dim; the first line is begun with `line`. Returns the last line, not yet among the lines.
local function add_row(rows, n, line, indent, width)
  local columns, cut = #line, rows.edge and n > 2 * rows.edge and rows.edge
  for i = 1, cut and 2 * cut or n do
    rows.at = rows.at + 1
    local word = rows.words[rows.at]
    line, columns = extend(rows, line, columns, word, #word, width - 1, indent)
    if i == cut then
      line, columns = extend(rows, line .. " ", columns + 1, ELLIPSIS, 1, width - 1, indent)
    end
    if i < (cut and 2 * cut or n) then line, columns = line .. " ", columns + 1 end
  end
  return line
end

--- The same for dim d and those below it.
local function add_dim(rows, d, line, indent, width)
  local n, rank = rows.shape[d], #rows.shape
  line, indent = line .. "[", indent + 1
  if d == rank then return add_row(rows, n, line, indent, width) .. "]" end
  local cut = rows.edge and n > 2 * rows.edge and rows.edge
  local function finish(text)
    rows.lines[#rows.lines + 1] = text
    for _ = 1, rank - d - 1 do rows.lines[#rows.lines + 1] = "" end
  end
  for i = 1, cut and 2 * cut or n do
    line = add_dim(rows, d + 1, i == 1 and line or rep(" ", indent), indent, width - 1)
    if i < (cut and 2 * cut or n) then finish(line) end
    if i == cut then finish(rep(" ", indent) .. ELLIPSIS) end
  end
  return line .. "]"
end

-- ---- tensors ----------------------------------------------------------------------------------------

local MOST_WHOLE, MOST_CORNERS = 1 << 24, 10000

--- So many elements at each end of long dims that what is shown stays within bounds; nil: all are shown.
local function edge_of(x, options)
  local n = x.size
  if n <= options.threshold and n <= MOST_WHOLE then return nil end
  for edge = options.edge_items, 2, -1 do
    local shown = 1
    for _, size in ipairs(x.shape) do shown = shown * math.min(size, 2 * edge) end
    if shown <= math.max(MOST_CORNERS, options.threshold) then return edge end
  end
  return 1
end

--- The text of a list of elements: those of a tensor, or of its corners.
local function text_of(list, shape, dtype, edge, options)
  if #shape == 0 then return scalar_text(list[1], dtype) end
  if #list == 0 then return "[]" end
  local rows = {words = words_of(list, dtype, options), at = 0, shape = shape, edge = edge, lines = {}}
  local last = add_dim(rows, 1, "", 0, options.width)
  rows.lines[#rows.lines + 1] = last
  return table.concat(rows.lines, "\n")
end

--- The elements of a tensor that is here as a whole.
local function elements(x, options)
  local edge = edge_of(x, options)
  return text_of(core.elements(x, edge), x.shape, x.dtype, edge, options)
end

--- The same of one that many processes have: each takes part, and only what is shown is sent.
local function gathered(x, options)
  local ml, edge, part = require "meshlua", edge_of(x, options), x
  for d, size in ipairs(x.shape) do
    local ids = {}
    for i = 0, edge and size > 2 * edge and edge - 1 or -1 do
      ids[i + 1], ids[i + 1 + edge] = i, size - edge + i
    end
    if #ids > 0 then part = ml.take(part, ml.tensor(ids), d) end
  end
  return text_of(core.elements(ml.all_gather_to_host(part)), x.shape, x.dtype, edge, options)
end

--- "[1..4, 3..3]", which part of a tensor it is.
local function index_text(index)
  local words = {}
  for d, range in ipairs(index) do words[d] = range[1] .. ".." .. range[2] end
  return "[" .. table.concat(words, ", ") .. "]"
end

--- What the devices of this process hold, each part once.
local function parts(x, options)
  local of, groups = {}, {}
  for _, shard in ipairs(x:addressable_shards()) do
    local group = of[shard.slot]
    if not group then
      group = {shard = shard, devices = {}}
      of[shard.slot], groups[#groups + 1] = group, group
    end
    table.insert(group.devices, shard.device)
  end
  local lines, all = {#x.shape == 0 and "" or nil}, #groups <= 16
  for i, group in ipairs(groups) do
    if all or i <= options.edge_items or i > #groups - options.edge_items then
      local data = group.shard.data
      lines[#lines + 1] = ("device%s %s %s:%s"):format(#group.devices == 1 and "" or "s",
        table.concat(group.devices, ","), index_text(group.shard.index), data and "" or " no values")
      if data then lines[#lines + 1] = elements(data, options) end
    elseif i == options.edge_items + 1 then
      lines[#lines + 1] = ELLIPSIS
    end
  end
  return table.concat(lines, "\n")
end

--- The options, once they are in their range.
local function checked(who, given)
  for name, bound in pairs(least) do
    local x = given[name]
    if x ~= nil and not (x >= bound) or name == "precision" and x and x > MOST_PRECISION then
      lib.raise("E_VALUE", "%s: %s is %s; expected %d%s", who, name, x, bound,
        name == "precision" and " to " .. MOST_PRECISION or " or more")
    end
  end
  return given
end

local current = defaults -- of the call under way

--- The values of a tensor as text, for tostring: where other processes have parts of it, those that are here; where
--- each device has something to add (nil), those only when asked for.
---@param x Tensor
---@param is_whole boolean?
---@return string
M.shown = core.plain(function(x, is_whole)
  if current.values == false or is_whole == nil and not current.by_device then return "" end
  return (is_whole and not current.by_device and elements or parts)(x, current)
end)

--- Calls fn(...), in which tensors print by these options.
---@param options table
---@param fn function
---@return any
function M.with(options, fn, ...)
  local before <close> = setmetatable({current}, {__close = function(held) current = held[1] end})
  current = setmetatable(options, {__index = before[1]})
  return fn(...)
end

--- Any value as a text to be read, by the options of set_print_options and these. items: so many entries of a table
--- are shown (100). by_device: what each device of this process holds. gather: the values of a tensor of which other
--- processes have parts, who must all call this.
---@param value any
---@param options {items: integer, by_device: boolean, gather: boolean}?
---@return string
M.show = core.wrap(function(value, options)
  options = checked("show", lib.options("show", options))
  if not (options.gather and lib.is_tensor(value)) or value.is_fully_addressable then
    return require("meshlua.repl.show").show(value, options)
  end
  local head = M.with({values = false}, tostring, value):gsub(" %(.*", "")
  return head .. "\n" .. M.with(options, core.plain(function() return gathered(value, current) end))
end, false, "show")

--- How tensors print from now on. precision: digits behind the point, at most (8). threshold: of more elements
--- only the corners are shown (1000), with edge_items at each end of a dim (3). width: columns of a line (75).
--- suppress: no exponents because of small numbers. sign: "-", "+" or " " in front of what is not negative.
--- float_mode: "maxprec", "fixed" (always `precision` digits), "unique" (as many as it takes), "maxprec_equal".
--- Returns what held before, to be given back.
---@param options {precision: integer, threshold: number, edge_items: integer, width: integer, suppress: boolean,
---  sign: "-"|"+"|" ", float_mode: "maxprec"|"fixed"|"unique"|"maxprec_equal"}
---@return table
M.set_print_options = core.wrap(function(options)
  options = checked("set_print_options", lib.options("set_print_options", options))
  local before = {}
  for name, value in pairs(defaults) do before[name] = value end
  for name, value in pairs(options) do defaults[name] = value end
  return before
end, false, "set_print_options")

return M
