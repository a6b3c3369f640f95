-- session.lua: a conversation with a model. What its cache has seen of the messages stays there: of each turn only what
-- is new goes through the model. Where the context is full the oldest turns go.
local cache_of = require "meshlua.generate.cache"
local core = require "meshlua.core"
local generate = require "meshlua.generate".generate

local M = {}

local SHARE = 4 -- an answer may count on this part of the context

---@class ChatSession
---@field open ChatModel
---@field options table temperature, ..., max_tokens, context
---@field messages {role: string, content: string}[]
---@field ids integer[] what the cache holds, and perhaps one more
---@field text string what they say
---@field turns integer
---@field forgot boolean? turns had to go
local Session = {}
Session.__index = Session

--- A text with U+FFFD for what is no UTF-8.
---@param text string
---@return string
function M.whole(text)
  local parts, at = {}, 1
  while at <= #text do
    local ok, bad = utf8.len(text, at)
    parts[#parts + 1] = text:sub(at, ok and -1 or bad - 1)
    if ok then break end
    parts[#parts + 1], at = "\u{FFFD}", bad + 1
  end
  return table.concat(parts)
end

--- A session with a model.
---@param open ChatModel
---@param options {context: integer, max_tokens: integer, system: string?, temperature: number, seed: integer}
---@return ChatSession
function M.new(open, options)
  local session = setmetatable({open = open, options = options}, Session)
  session.cache = cache_of.cache(open.model, 1, options.context, {mesh = open.mesh, rules = open.rules})
  session.stops = {}
  for _, id in ipairs(open.tokenizer.stops) do session.stops[id] = true end
  session:reset()
  return session
end

--- Begins anew.
function Session:reset()
  self.messages, self.ids, self.text, self.turns = {}, {}, "", 0
  self.cache:rewind()
  if self.options.system then self.messages[1] = {role = "system", content = self.options.system} end
end

-- ---- what is said to the model ----------------------------------------------------------------------------

local function token_text(tokenizer, id) return id and tokenizer:piece(id) or "" end

--- The messages as the model wants them; or nil, message, code.
function Session:rendered()
  local tokenizer = self.open.tokenizer
  return self.open.template:render {messages = self.messages, add_generation_prompt = true,
    bos_token = token_text(tokenizer, tokenizer.bos), eos_token = token_text(tokenizer, tokenizer.eos)}
end

--- The ids of a text that goes on where the cache is, if it does: then only what is new is encoded.
function Session:encoded(text)
  local tokenizer, known = self.open.tokenizer, #self.text
  local raw = not self.open.template
  if known == 0 or text:sub(1, known) ~= self.text then
    local bos = nil
    if not raw then bos = false end -- the template has it
    return tokenizer:encode(text, {special = not raw, bos = bos, eos = false})
  end
  local ids = table.move(self.ids, 1, #self.ids, 1, {})
  local more = tokenizer:encode(text:sub(known + 1), {special = not raw, bos = false, eos = false})
  return table.move(more, 1, #more, #ids + 1, ids)
end

--- Takes the oldest turn out; false: there is none but the last.
function Session:forget()
  local list = self.messages
  local first = list[1] and list[1].role == "system" and 2 or 1
  if first + 1 >= #list then return false end
  repeat table.remove(list, first) until first >= #list or list[first].role == "user"
  self.forgot = true
  return true
end

--- The ids to go on from, as many as there is room for; or nil, message, code.
function Session:prompt()
  local context = self.options.context
  local room = math.min(self.options.max_tokens, context // SHARE)
  while true do
    local text, message, code = self.next_text, nil, nil
    if self.open.template then text, message, code = self:rendered() end
    if not text then return nil, message, code end
    local ids = self:encoded(text)
    if #ids == 0 then return nil, "there is nothing to continue", "E_VALUE" end
    if #ids + room <= context then return ids, text end
    if not self.open.template and #ids > context - room then -- the end of the text
      self.forgot = true
      local from = #ids - (context - room) + 1
      return table.move(ids, from, #ids, 1, {}), text
    elseif not self:forget() then
      if #ids < context then return ids, text end
      return nil, ("this has %d tokens, and the context %d (--context=N)"):format(#ids, context), "E_VALUE"
    end
  end
end

-- ---- a turn -----------------------------------------------------------------------------------------------

--- How much of ids the cache has already; the rest of it is forgotten.
function Session:keep(ids)
  local filled, same = self.cache:filled()[1], 0
  local most = math.min(filled, #ids - 1)
  while same < most and self.ids[same + 1] == ids[same + 1] do same = same + 1 end
  if same < filled then self.cache:rewind {same} end
  return same
end

--- Generates behind ids: the reason of the end; false, message where it failed (Ctrl-C among it).
function Session:run(ids, protected, write)
  local o, tokenizer, answer = self.options, self.open.tokenizer, {}
  local stream = tokenizer:stream()
  local kept = self:keep(ids)
  self.ids = table.move(ids, 1, #ids, 1, {})
  local function say(text)
    answer[#answer + 1] = M.whole(text)
    if text ~= "" then write(answer[#answer]) end
  end
  local began = core.clock()
  self.new, self.first_at, self.tokens = #ids - kept, nil, 0
  local ok, reason = protected(function()
    local _, why = generate(self.open.model, table.move(ids, kept + 1, #ids, 1, {}), {cache = self.cache,
      max_tokens = o.max_tokens, temperature = o.temperature, top_k = o.top_k, top_p = o.top_p,
      min_p = o.min_p, seed = o.seed + self.turns, stop = tokenizer.stops, mesh = self.open.mesh,
      rules = self.open.rules, callback = function(came)
        self.first_at = self.first_at or core.clock() - began
        if self.stops[came[1]] then return end
        self.tokens, self.ids[#self.ids + 1] = self.tokens + 1, came[1]
        if came[1] < tokenizer.size then say(stream(came[1])) end -- a model may have ids that mean nothing
      end})
    say(stream())
    return why
  end)
  self.seconds, self.answer = core.clock() - began, table.concat(answer)
  if not ok then return false, reason end
  return reason
end

--- One turn: takes what the user says, writes the answer as it comes. Gives why it ends ("stop", "length", "context",
--- "interrupt"); or nil, message, code, and the conversation is what it was.
---@param text string
---@param protected function as program.protected
---@param write fun(text: string)
---@return string? reason, string? message, string? code
function Session:say(text, protected, write)
  text, self.forgot = M.whole(text), nil
  local before = table.move(self.messages, 1, #self.messages, 1, {})
  self.next_text = self.text .. text
  if self.open.template then self.messages[#self.messages + 1] = {role = "user", content = text} end
  local ids, prompt, code = self:prompt()
  if not ids then
    self.messages = before
    return nil, prompt, code
  end
  local reason, message = self:run(ids, protected, write)
  self.text = prompt .. self.answer
  if not reason and not message:find "%[E_INTERRUPT%]" then
    self.messages, self.ids, self.text = before, {}, ""
    return nil, message
  end
  self.turns = self.turns + 1
  if self.open.template then
    self.messages[#self.messages + 1] = {role = "assistant", content = self.answer}
  end
  return reason or "interrupt"
end

--- How many tokens the cache has.
---@return integer
function Session:used() return self.cache:filled()[1] end

return M
