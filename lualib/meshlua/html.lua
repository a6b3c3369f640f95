-- html.lua: pages of HTML in one file, without a script or anything from elsewhere: elements, tables, charts
-- as SVG.
local M = {}

local ESCAPES = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}

---@class Markup
local Markup = {__name = "Markup", __tostring = function(m) return m.text end}

--- Text as it stands in a page. Control bytes and what is not UTF-8 are shown as U+FFFD.
---@param text any
---@return string
function M.escape(text)
  text = tostring(text):gsub("[%c\x7f]", function(c) return (c == "\n" or c == "\t") and c or "\u{FFFD}" end)
  if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "\u{FFFD}") end
  return (text:gsub('[&<>"]', ESCAPES))
end

local function inner(child)
  if child == nil or child == false then return "" end
  if getmetatable(child) == Markup then return child.text end
  if type(child) ~= "table" then return M.escape(child) end
  local words = {}
  for i, c in ipairs(child) do words[i] = inner(c) end
  return table.concat(words)
end

--- An element: its name, its attributes in the order of their names, and its children: texts, which are
--- escaped, elements, and lists of both.
---@param name string
---@param attributes table<string, any>?
---@param children any
---@return Markup
function M.element(name, attributes, children)
  local words, names = {"<" .. name}, {}
  for key in pairs(attributes or {}) do names[#names + 1] = key end
  table.sort(names)
  for _, key in ipairs(names) do words[#words + 1] = (' %s="%s"'):format(key, M.escape(attributes[key])) end
  words[#words + 1] = ">" .. inner(children) .. "</" .. name .. ">"
  return setmetatable({text = table.concat(words)}, Markup)
end

local element = M.element

--- A table: the first row is its head; cells of the columns in `right` are aligned there.
---@param rows any[][]
---@param right table<integer, boolean>?
---@return Markup
function M.table(rows, right)
  local lines = {}
  for r, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      cells[i] = element(r == 1 and "th" or "td", right and right[i] and {class = "right"} or nil, cell)
    end
    lines[r] = element("tr", nil, cells)
  end
  return element("table", nil, lines)
end

local STYLE = [[
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#6b7280;--line:#d6dae0;--a:#2f6fb3;
--b:#d97706;--c:#9aa5b1}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#14171b;--soft:#9aa3ad;--line:#363c44;
--a:#6aa5e8;--b:#f0a34a;--c:#5c6672}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;
max-width:76rem;padding:0 1rem}
h1{font-size:1.35rem;margin:0 0 .4rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.3rem 0}
.soft{color:var(--soft)}table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;padding:.2rem .9rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}
.right{text-align:right;font-variant-numeric:tabular-nums}section{overflow-x:auto}
pre{overflow-x:auto;font:.82rem/1.45 ui-monospace,monospace}svg{max-width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}]]

--- A page.
---@param title string
---@param body any elements
---@return string
function M.page(title, body)
  return "<!DOCTYPE html>\n" .. inner(element("html", {lang = "en"}, {
    element("head", nil, {setmetatable({text = '<meta charset="utf-8"><meta name="viewport" '
      .. 'content="width=device-width,initial-scale=1">'}, Markup), element("title", nil, title),
      element("style", nil, setmetatable({text = STYLE}, Markup))}),
    element("body", nil, body)})) .. "\n"
end

--- A picture of this size, in units of its own.
---@param width number
---@param height number
---@param label string what is to be seen, for who does not see it
---@param children any
---@return Markup
function M.picture(width, height, label, children)
  return element("svg", {viewBox = ("0 0 %g %g"):format(width, height), width = ("%g"):format(width),
    role = "img",
    ["aria-label"] = label}, children)
end

--- A rectangle; `tip` is shown where the pointer is.
---@param tip string?
---@return Markup
function M.box(x, y, width, height, fill, tip)
  return element("rect", {x = ("%.2f"):format(x), y = ("%.2f"):format(y), width = ("%.2f"):format(width),
    height = ("%.2f"):format(height), fill = fill}, tip and element("title", nil, tip))
end

---@return Markup
function M.label(x, y, text, anchor)
  return element("text", {x = ("%.2f"):format(x), y = ("%.2f"):format(y), ["text-anchor"] = anchor
    or "start"}, text)
end

return M
