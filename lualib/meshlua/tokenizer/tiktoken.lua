-- tiktoken.lua: files of lines "base64 rank", as tiktoken has them. They say neither a pattern nor special tokens:
-- those of known vocabularies are told by their size.
local json = require "meshlua.tokenizer.json"
local refuse = require "meshlua.tokenizer.refuse"
local rules = require "meshlua.tokenizer.rules"

local M = {}

local value_of = {}
for i = 0, 63 do
  local letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  value_of[letters:byte(i + 1)] = i
end

--- The bytes of a base64 text; nil where it is none.
---@param text string
---@return string?
function M.base64(text)
  local out, n = {}, #text
  if n == 0 or n % 4 ~= 0 then return nil end
  for i = 1, n, 4 do
    local a, b, c, d = text:byte(i, i + 3)
    a, b = value_of[a], value_of[b]
    local last = i + 3 == n
    local c_value, d_value = value_of[c], value_of[d]
    if not a or not b then return nil end
    if last and d == 61 and c == 61 then
      out[#out + 1] = string.char(a << 2 | b >> 4)
    elseif last and d == 61 and c_value then
      out[#out + 1] = string.char(a << 2 | b >> 4, (b & 15) << 4 | c_value >> 2)
    elseif c_value and d_value then
      out[#out + 1] = string.char(a << 2 | b >> 4, (b & 15) << 4 | c_value >> 2, (c_value & 3) << 6 | d_value)
    else
      return nil
    end
  end
  return table.concat(out)
end

local UPPER, LOWER = [=[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]]=], [=[[\p{Ll}\p{Lm}\p{Lo}\p{M}]]=]
local WORD = [=[[^\r\n\p{L}\p{N}]?%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?]=]
local O200K = table.concat({
  WORD:format(UPPER .. "*" .. LOWER .. "+"), WORD:format(UPPER .. "+" .. LOWER .. "*"),
  [[\p{N}{1,3}]], [[ ?[^\s\p{L}\p{N}]+[\r\n/]*]], [[\s*[\r\n]+]], [[\s+(?!\S)]], [[\s+]]}, "|")

--- LLaMA-3's 256 special tokens.
local function llama3()
  local names = {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"}
  for i = 2, 245 do names[#names + 1] = ("<|reserved_special_token_%d|>"):format(i) end
  return names
end

--- By the number of ranks: pattern, special tokens behind them; bos, eos, and further ids that end a turn, by name.
local known = {
  [50256] = {rules.GPT2, {"<|endoftext|>"}, bos = "<|endoftext|>", eos = "<|endoftext|>"},
  [100256] = {rules.cl100k "{1,3}", {false, "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", [21] = "<|endofprompt|>"}, eos = "<|endoftext|>"},
  [128000] = {rules.cl100k "{1,3}", llama3, bos = "<|begin_of_text|>", eos = "<|end_of_text|>",
    stops = {"<|eot_id|>", "<|eom_id|>"}},
  [199998] = {O200K, {false, "<|endoftext|>", [21] = "<|endofprompt|>"}, eos = "<|endoftext|>"},
}

--- Is it the beginning of such a file?
function M.is(head) return head:find "^[%w+/]+=*[ ][0-9]+\r?\n" ~= nil end

local function read_ranks(text)
  local pieces, n, largest, line = {}, 0, -1, 0
  for one in text:gmatch "([^\n]*)\n?" do
    line = line + 1
    if one ~= "" then
      local word, digits = one:match "^(%S+) (%d+)\r?$"
      local piece, rank = word and M.base64(word), math.tointeger(tonumber(digits))
      if not piece or not rank then refuse.broken("line %d: not a base64 text and a rank", line) end
      if rank >= 1 << 22 then refuse.broken("line %d: rank %d", line, rank) end
      if pieces[rank] then refuse.broken("line %d: rank %d is there twice", line, rank) end
      pieces[rank], n, largest = piece, n + 1, math.max(largest, rank)
    end
  end
  return pieces, n, largest
end

local function check_ranks(pieces, largest)
  local taken = {}
  for rank = 0, largest do
    local piece = pieces[rank]
    if piece and taken[piece] then
      refuse.broken("ranks %d and %d have the same bytes", taken[piece], rank)
    end
    if piece then taken[piece] = rank end
  end
  for byte = 0, 255 do
    if not taken[string.char(byte)] then refuse.broken("byte 0x%02x has no rank", byte) end
  end
end

--- The fields of core.tokenizer.
---@param text string
---@param options {pattern: string, special: string[]}
---@return table
function M.fields(text, options)
  local pieces, count, largest = read_ranks(text)
  check_ranks(pieces, largest)
  local row = known[largest + 1] or {}
  local pattern, special = options.pattern or row[1], options.special or row[2] or {}
  if not pattern then
    refuse.unsupported("%d ranks are no vocabulary that is known; say its pattern: {pattern = ...}", count)
  end
  if type(special) == "function" then special = special() end
  local fields = rules.read(rules.byte_level {pattern})
  fields.doc, fields.whole, fields.names, fields.hidden = rules.byte_level {pattern}, true, {}, {}
  fields.pieces, fields.ranks, fields.added = {}, {}, {}
  local last = 0
  for i in pairs(special) do last = math.max(last, i) end
  for id = 0, largest + last do
    local name = special[id - largest]
    fields.pieces[id + 1], fields.ranks[id + 1] = name or pieces[id] or false, id
    if name then
      fields.names[id], fields.hidden[id] = name, true
      fields.added[#fields.added + 1] = {id, special = true}
      for _, role in ipairs {"bos", "eos"} do
        if row[role] == name then fields[role] = id end
      end
      for _, stop in ipairs(row.stops or {}) do
        if stop == name then fields.stops = fields.stops or {}; table.insert(fields.stops, id) end
      end
    end
  end
  return json.finish(fields)
end

return M
