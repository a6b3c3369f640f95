-- tokenizers.lua: files of vocabularies made wrong, and random bytes there and back.
local helper = require "spec.helper"
local ml = require "meshlua"

local M = {}

--- A generator of numbers from 1 to its argument.
local function drawn(seed)
  local state = seed
  return function(most)
    state = state + 0x9e3779b97f4a7c15
    local z = state
    z = (z ~ (z >> 30)) * 0xbf58476d1ce4e5b9
    z = (z ~ (z >> 27)) * 0x94d049bb133111eb
    return ((z ~ (z >> 31)) >> 1) % most + 1
  end
end

local WORDS = {"null", "[]", "{}", "0", "-1", "1e9", "99999999999", "\"a\"", "true", "4294967296", "\0",
  "\xff", "\xe2\x96\x81", "[[\"a\",\"b\"]]", "\"type\"", "Sequence", "\"", " ", "\n"}

--- A sample with a few changes.
local function changed(text, draw)
  for _ = 1, draw(4) do
    local at, kind = draw(#text), draw(6)
    local before, after = text:sub(1, at - 1), text:sub(at)
    if kind == 1 then text = before .. string.char(draw(256) - 1) .. after:sub(2)
    elseif kind == 2 then text = before .. after:sub(1 + draw(16))
    elseif kind == 3 then text = before .. WORDS[draw(#WORDS)] .. after
    elseif kind == 4 then
      local number, rest = after:match "^[^%d]*()%d+()"
      if number then
        text = before .. after:sub(1, number - 1) .. WORDS[draw(#WORDS)] .. after:sub(rest)
      end
    elseif kind == 5 then
      local from = draw(#text)
      text = before .. text:sub(from, from + draw(40)) .. after
    elseif draw(10) == 1 then text = before end
    if text == "" then return "x" end
  end
  return text
end

--- Reads `count` files, each one of the samples with changes; what is read must encode and decode. Returns how many
--- were read.
---@param samples string[]
---@param count integer
---@param seed integer
function M.files(samples, count, seed)
  local read, path = 0, helper.file ""
  for i = 1, count do
    local draw = drawn(seed * count + i)
    local text = changed(samples[draw(#samples)], draw)
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
    local ok, t, message, code = pcall(ml.tokenizer, path, {pattern = "\\w+|\\W"})
    if not ok or not t and not (message and code) then
      error(("seed %d, file %d: %s"):format(seed, i, tostring(t or message)))
    elseif t then
      read = read + 1
      t:decode(t:encode("In \xff\u{2581}1 <s> \u{1f600}", {special = true}), {special = true})
    end
  end
  return read
end

--- Random bytes, as they are and of characters, through encode and decode; raises where they are not the same.
---@param t Tokenizer
---@param count integer
---@param seed integer
function M.round_trips(t, count, seed)
  local draw, texts = drawn(seed), {}
  for i = 1, count do
    local parts = {}
    for k = 1, draw(12) do
      local kind = draw(4)
      parts[k] = kind == 1 and string.char(draw(256) - 1) or kind == 2 and utf8.char(draw(0x3000))
        or kind == 3 and (" "):rep(draw(3)) or string.char(96 + draw(26), 96 + draw(26))
    end
    texts[#texts + 1] = table.concat(parts)
    if #texts == 10000 or i == count then
      for j, ids in ipairs(t:encode_batch(texts)) do
        if t:decode(ids) ~= texts[j] then error(("%q does not come back"):format(texts[j])) end
      end
      texts = {}
    end
  end
end

return M
