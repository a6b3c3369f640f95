-- bytes.lua: how files of vocabularies write bytes as characters. GPT-2's: what is printable in Latin-1 stands for
-- itself, the other 68 bytes for U+0100 and on. sentencepiece's: a space is U+2581, a byte <0x0A>.
local M = {}

--- sentencepiece's space.
M.MARK = "\u{2581}"

local char_of, byte_of = {}, {}
local further = 0
for byte = 0, 255 do
  local is_itself = byte >= 0x21 and byte <= 0x7e or byte >= 0xa1 and byte <= 0xac or byte >= 0xae
  local char = utf8.char(is_itself and byte or 0x100 + further)
  if not is_itself then further = further + 1 end
  char_of[string.char(byte)], byte_of[char] = char, string.char(byte)
end

--- The bytes that a text of GPT-2's characters stands for; nil where a character stands for none.
---@param text string UTF-8
---@return string?
function M.of_chars(text)
  if not text:find "[\x80-\xff ]" and not text:find "%c" then return text end
  local all = true
  local bytes = text:gsub(utf8.charpattern, function(char)
    local byte = byte_of[char]
    if not byte then all = false end
    return byte
  end)
  return all and bytes or nil
end

--- The reverse.
---@param bytes string
---@return string
function M.to_chars(bytes) return (bytes:gsub(".", char_of)) end

--- Bytes in the order of their characters, which is that of GPT-2's ids.
---@return string[]
function M.in_order()
  local list = {}
  for byte in pairs(char_of) do list[#list + 1] = byte end
  table.sort(list, function(a, b) return utf8.codepoint(char_of[a]) < utf8.codepoint(char_of[b]) end)
  return list
end

--- "<0x0A>" of a byte, and the byte of that; nil: it is no such text.
---@param byte integer
function M.name(byte) return ("<0x%02X>"):format(byte) end

---@param name string
---@return integer? byte
function M.of_name(name)
  local digits = #name == 6 and name:match "^<0x(%x%x)>$"
  return digits and tonumber(digits, 16)
end

return M
