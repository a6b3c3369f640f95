-- init.lua: text from a model, token by token: ml.generate. Prompts go through the model in chunks of one size, behind
-- what a cache holds; then each step is the model on one token of each row. Sampling is part of both plans; what comes
-- out stays on the devices as the next step's input, and is read once a step.
local arrays = require "meshlua.ops.arrays"
local cache_of = require "meshlua.generate.cache"
local core = require "meshlua.core"
local create = require "meshlua.nn.create"
local jit = require "meshlua.transform.jit"
local lib = require "meshlua.lib"
local mesh_of = require "meshlua.sharding.mesh"
local ops = require "meshlua.ops"
local param = require "meshlua.nn.param"
local random = require "meshlua.random"
local rules_of = require "meshlua.sharding.rules"
local sampling = require "meshlua.generate.sampling"

local op, raise = core.op, lib.raise

local M = {}

local CHUNKS = {16, 32, 64, 128, 256, 512} -- sizes of a chunk; few, so that prompts share plans
local ROOM = 256 -- a cache has so many slots, or twice as many, ...: prompts of other lengths share plans
local CHUNK_COST = 24 -- what a call costs beside its tokens, in tokens

-- ---- the plans --------------------------------------------------------------------------------------------

--- Ids through the model; the next token of the rows that `take` one.
local function advance(model, cache, state, how, ids, take)
  if how.penalty then sampling.note(state, ids) end
  local logits = model(ids, nil, cache)
  logits = ops.reshape(logits, {ids.shape[1], logits.shape[logits.ndim]})
  local drawn = op.where(take, sampling.draw(how, state, logits), state.ids:get())
  state.drawn:set(op.add(state.drawn:get(), op.astype(take, {dtype = "int32"})))
  if core.mesh_current() then drawn = mesh_of.constrain(drawn, core.P()) end
  state.ids:set(drawn)
  return drawn
end

local prefill = jit.jit(advance)

local token = jit.jit(function(model, cache, state, how)
  local ids = state.ids:get()
  return advance(model, cache, state, how, ops.expand_dims(ids, 2), op.ge(ids, 0))
end)

M.steps = {prefill = prefill, token = token} -- for those who look at plans

-- ---- options ------------------------------------------------------------------------------------------------

--- A number of the options within bounds, or its default.
local function number(options, name, default, least, most, above)
  local x = options[name]
  if x == nil then return default end
  lib.check_number("generate", name, x)
  if not (x >= least and x <= most) or above and x == least then
    raise("E_VALUE", "generate: %s is %s; it must be %s %g%s", name, x, above and "above" or "from", least,
      most < math.huge and (" to %g"):format(most) or "")
  end
  return x
end

local function whole(options, name, least)
  local x = options[name]
  if x == nil then return nil end
  if lib.check_integer("generate", name, x) < least then
    raise("E_VALUE", "generate: %s is %d; it must be from %d", name, x, least)
  end
  return x
end

--- What is drawn, and how: {how = of the plan, numbers =, ...}.
local function read_options(options)
  local o = {max_tokens = whole(options, "max_tokens", 0) or 128, stop_ids = {}, stop_texts = {}}
  o.numbers = {number(options, "temperature", 0.0, 0, math.huge), number(options, "top_p", 1.0, 0, 1, true),
    number(options, "min_p", 0.0, 0, 1), number(options, "repetition_penalty", 1.0, 0, math.huge, true)}
  local t, p, m, r = table.unpack(o.numbers)
  o.how = {greedy = t == 0, top_k = whole(options, "top_k", 1) or false, top_p = p < 1, min_p = m > 0,
    penalty = r ~= 1}
  if o.how.greedy then o.how.top_k, o.how.top_p, o.how.min_p = false, false, false end
  local tokenizer = options.tokenizer
  if tokenizer and not (tokenizer.encode and tokenizer.stream) then
    raise("E_VALUE", "generate: the tokenizer has no encode and stream; ml.tokenizer makes one that has")
  end
  local stop = options.stop
  if stop ~= nil and type(stop) ~= "table" then stop = {stop} end
  for _, s in ipairs(stop or {}) do
    if math.type(s) == "integer" then
      o.stop_ids[s] = true
    elseif type(s) == "string" and s ~= "" then
      if not options.tokenizer then
        raise("E_VALUE", "generate: stop has the text %q; texts need a tokenizer: pass tokenizer =", s)
      end
      o.stop_texts[#o.stop_texts + 1] = s
    else
      raise("E_VALUE", "generate: stop has %s; it is a list of ids and texts", lib.kind(s))
    end
  end
  return o
end

--- A prompt as a list of ids.
local function prompt_of(prompt, tokenizer, row, vocab)
  if type(prompt) == "string" then
    if not tokenizer then
      raise("E_VALUE", "generate: a text as prompt needs a tokenizer: pass tokenizer =")
    end
    prompt = tokenizer:encode(prompt)
  elseif lib.is_tensor(prompt) then
    prompt = arrays.all_gather_to_host(prompt):totable()
  end
  if type(prompt) ~= "table" then
    raise("E_VALUE", "generate: a prompt is a list of ids, got %s", lib.kind(prompt))
  end
  if #prompt == 0 then
    raise("E_VALUE", "generate: prompt %d is empty; it has at least the token that begins a text", row)
  end
  for i, id in ipairs(prompt) do
    if math.type(id) ~= "integer" or id < 0 or vocab and id >= vocab then
      raise("E_VALUE", "generate: token %d of prompt %d is %s; ids are whole numbers from 0%s", i, row, id,
        vocab and (" to %d"):format(vocab - 1) or "")
    end
  end
  return prompt
end

--- The prompts as lists of ids, and whether there was one alone.
local function read_prompts(ids, options, vocab)
  local alone = type(ids) == "string" or lib.is_tensor(ids) and ids.ndim == 1
    or type(ids) == "table" and math.type(ids[1]) ~= nil
  if lib.is_tensor(ids) and not alone then ids = arrays.all_gather_to_host(ids):totable() end
  local list = alone and {ids} or ids
  if type(list) ~= "table" then
    raise("E_VALUE", "generate: expected a list of ids, or a list of such lists, got %s", lib.kind(ids))
  end
  if #list == 0 then list, alone = {{}}, true end
  local prompts = {}
  for b, prompt in ipairs(list) do prompts[b] = prompt_of(prompt, options.tokenizer, b, vocab) end
  return prompts, alone
end

-- ---- a generation -------------------------------------------------------------------------------------------

--- A generation under way.
---@class Generation
local Generation = {}
Generation.__index = Generation

--- What the plans keep between steps, on the cache's mesh.
local function new_state(o, home, batch, vocab, seed)
  return create.init(function()
    local function keep(x) return param.Param(x, {kind = "cache"}) end
    local state = {ids = keep(ops.full({batch}, -1, "int32")), drawn = keep(ops.zeros({batch}, "int32")),
      key = keep(random.key(seed)), numbers = keep(core.tensor(o.numbers, "float32"))}
    if o.how.penalty then state.seen = keep(ops.zeros({batch, vocab}, "bool")) end
    return state
  end, home)
end

function Generation:within(fn, ...) return rules_of.within(self.home.mesh, self.home.rules, fn, ...) end

--- A small list on the devices.
function Generation:put(list, dtype)
  local x = core.tensor(list, dtype)
  return self.home.mesh and mesh_of.device_put(x, core.NamedSharding(self.home.mesh, core.P())) or x
end

--- The size of chunk that takes the longest of some lists through in the least time.
local function chunk_for(longest, most)
  local best, cost
  for _, n in ipairs(CHUNKS) do
    local size = math.min(n, most)
    local all = (longest + size - 1) // size * (size + CHUNK_COST)
    if not cost or all < cost then best, cost = size, all end
  end
  return best
end

--- A step's tokens. What it gave is let go at once, so that the next step can write there.
local function read(ids)
  local list = ids:totable()
  ids:release()
  return list
end

--- Lists of tokens, one for each row (none: {}), through the model. Returns the next token of each.
function Generation:feed(lists)
  local longest, next_ids = 1, nil
  for _, list in ipairs(lists) do longest = math.max(longest, #list) end
  self.chunk = self.chunk or chunk_for(longest, self.slots)
  local n = self.chunk
  for from = 0, longest - 1, n do
    local rows, take = {}, {}
    for b, list in ipairs(lists) do
      rows[b] = {}
      for i = 1, n do rows[b][i] = list[from + i] or -1 end
      take[b] = #list > from and #list <= from + n
      self.filled[b] = self.filled[b] + math.max(0, math.min(n, #list - from))
    end
    next_ids = self:within(prefill, self.model, self.cache, self.state, self.how, self:put(rows, "int32"),
      self:put(take, "bool"))
  end
  return read(next_ids)
end

--- The next token of each row behind the one that came last.
function Generation:step()
  for b, done in ipairs(self.done) do
    if not done then self.filled[b] = self.filled[b] + 1 end
  end
  self.bound = self.bound or self:within(function()
    return token:bind(self.model, self.cache, self.state, self.how)
  end)
  return read(self:within(self.bound))
end

--- Where a row's text ends at a stop text, nil: it does not.
local function stopped(text, from, stops)
  local first
  for _, s in ipairs(stops) do
    local at = text:find(s, math.max(1, from - #s + 1), true)
    if at and (not first or at < first) then first = at end
  end
  return first
end

--- How many bytes at a text's end may be the begin of a stop text.
local function held_back(text, stops)
  local most = 0
  for _, s in ipairs(stops) do
    for n = math.min(#s - 1, #text), most + 1, -1 do
      if text:sub(-n) == s:sub(1, n) then most = n break end
    end
  end
  return most
end

--- Takes a row's next token; returns why the row ends, or nil.
function Generation:take(row, id, filled)
  if self.stop_ids[id] then return "stop" end
  row.ids[#row.ids + 1] = id
  if row.stream then
    local from = #row.text
    row.text = row.text .. (row.stream(id) or "")
    local at = stopped(row.text, from, self.stop_texts)
    if at then
      row.text = row.text:sub(1, at - 1)
      return "stop"
    end
  end
  if #row.ids == self.max_tokens then return "length" end
  if filled == self.slots and not self.slide then return "context" end
end

--- What of a row's text is new, and will stay.
function Generation:news(row, done)
  if not row.text then return nil end
  if done and done ~= "stop" then row.text = row.text .. (row.stream() or "") end
  local from = row.told or 0
  row.told = #row.text - (done and 0 or held_back(row.text, self.stop_texts))
  return row.text:sub(from + 1, row.told)
end

--- All rows' next tokens. Returns whether any row goes on.
function Generation:take_all(ids, callback)
  local going, changed, came, news = false, false, {}, {}
  for b, id in ipairs(ids) do
    came[b], news[b] = not self.done[b] and id, ""
    if not self.done[b] then
      self.done[b] = self:take(self.rows[b], id, self.filled[b]) or false
      news[b] = self:news(self.rows[b], self.done[b])
      changed = changed or self.done[b]
      if self.done[b] then ids[b] = -1 end
    end
    going = going or not self.done[b]
  end
  if callback and callback(came, self.rows[1].text and news) == false then
    for b in ipairs(ids) do self.done[b] = self.done[b] or "callback" end
    return false
  end
  if going and changed then self.state.ids:set(self:put(ids, "int32")) end
  return going
end

--- Where a row fills the cache: it begins anew with the last half of what came.
function Generation:slid()
  local full = false
  for b in ipairs(self.rows) do full = full or not self.done[b] and self.filled[b] == self.slots end
  if not full then return nil end
  self.cache:rewind()
  local lists = {}
  for b, row in ipairs(self.rows) do
    local all = table.move(row.prompt, 1, #row.prompt, 1, {})
    table.move(row.ids, 1, #row.ids, #all + 1, all)
    self.filled[b] = 0
    local from = self.done[b] and #all + 1 or math.max(1, #all - self.slots // 2 + 1)
    lists[b] = table.move(all, from, #all, 1, {})
  end
  return self:feed(lists)
end

--- Refuses prompts that the cache has no room for.
local function check_room(prompts, filled, slots, what)
  for b, prompt in ipairs(prompts) do
    if filled[b] + #prompt > slots then
      raise("E_VALUE", "generate: prompt %d has %s%s; %s", b, lib.count(#prompt, "token"),
        filled[b] > 0 and (" behind %d"):format(filled[b]) or "", what:format(slots))
    end
  end
end

local function new_generation(model, prompts, options, o)
  local batch, longest, cache = #prompts, 0, options.cache
  for _, prompt in ipairs(prompts) do longest = math.max(longest, #prompt) end
  if cache and not cache_of.is_cache(cache) then
    raise("E_VALUE", "generate: cache is %s; ml.cache makes one", lib.kind(cache))
  end
  local context, empty = rawget(model, "context"), {}
  for b = 1, batch do empty[b] = 0 end
  if not cache then
    if context then check_room(prompts, empty, context, "the model's context is %d") end
    local length = (longest + o.max_tokens + ROOM - 1) // ROOM * ROOM
    cache = cache_of.cache(model, batch, math.min(length, context or length),
      {mesh = options.mesh, rules = options.rules, dtype = options.cache_dtype})
  elseif cache.lengths.shape[1] ~= batch then
    raise("E_VALUE", "generate: %s for a cache of %s", lib.count(batch, "prompt"),
      lib.count(cache.lengths.shape[1], "row"))
  end
  local g = setmetatable({model = model, cache = cache, home = cache_of.home(cache), how = o.how, rows = {},
    done = {}, max_tokens = o.max_tokens, stop_ids = o.stop_ids, stop_texts = o.stop_texts,
    slide = options.slide, slots = cache_of.slots(cache)}, Generation)
  g.filled = options.cache and cache:filled() or empty
  check_room(prompts, g.filled, g.slots, "the cache has room for %d")
  for b, prompt in ipairs(prompts) do
    local stream = options.tokenizer and options.tokenizer:stream()
    g.rows[b], g.done[b] = {prompt = prompt, ids = {}, stream = stream, text = stream and ""}, false
  end
  return g
end

--- Continues prompts: each step is one plan, whatever the prompts' lengths are. A prompt is a list of ids, or with a
--- tokenizer a text; a list of prompts is a batch, whose rows do not see each other. Returns for a prompt, or for each
--- of a list, the new tokens, why they end ("stop", "length": max_tokens, "context": there is no room, "callback"), and
--- with a tokenizer the text.
---@param model table it is called as model(ids, nil, cache); put it to :eval() where it has dropout
---@param ids integer[]|integer[][]|string|string[]|Tensor
---@param options GenerateOptions?
---@return integer[]|integer[][] tokens, string|string[] reasons, string|string[]|nil texts
function M.generate(model, ids, options)
  options = lib.options("generate", options)
  if type(model) ~= "table" or not lib.is_callable(model) then
    raise("E_VALUE", "generate: expected a model that takes a cache, got %s", lib.kind(model))
  end
  if core.is_tracing() then
    raise("E_TRACED", "generate: inside a traced function; what it reads of each step is not there yet")
  end
  local o = read_options(options)
  local vocab = rawget(model, "vocab")
  local prompts, alone = read_prompts(ids, options, vocab)
  local g = new_generation(model, prompts, options, o)
  if o.how.penalty and not vocab then
    raise("E_VALUE", "generate: repetition_penalty needs to know the vocabulary: set model.vocab")
  end
  local seed = lib.check_integer("generate", "the seed", options.seed or 0)
  g.state = new_state(o, g.home, #prompts, vocab, seed)
  if o.max_tokens > 0 then
    local going = g:take_all(g:feed(prompts), options.callback)
    while going do going = g:take_all(g.slide and g:slid() or g:step(), options.callback) end
  end
  local tokens, reasons, texts = {}, {}, options.tokenizer and {}
  for b, row in ipairs(g.rows) do
    tokens[b], reasons[b] = row.ids, g.done[b] or "length"
    if texts then texts[b] = row.text end
  end
  if alone then return tokens[1], reasons[1], texts and texts[1] end
  return tokens, reasons, texts
end

---@class GenerateOptions
---@field max_tokens integer? at most so many new tokens of each row; default 128
---@field temperature number? below 1 the likely is likelier; default 0: always the most likely
---@field top_k integer? only the k most likely are drawn
---@field top_p number? only the most likely that together have this probability
---@field min_p number? only those that have at least this share of the most likely's probability
---@field repetition_penalty number? above 1: tokens that the row has had are less likely
---@field seed integer? default 0: the same seed gives the same tokens, on any mesh
---@field stop (integer|string)[]|integer|string|nil ids, and with a tokenizer texts, at which a row ends
---@field tokenizer table? encode(text) and stream() (ml.tokenizer)
---@field callback fun(ids: (integer|false)[], texts: string[]): boolean? called with each step's ids, false for rows
--- that have ended, and with a tokenizer the text that each row has more; false stops
---@field cache Cache? what came before (ml.cache); it holds the prompts and what came, but for the last token
---@field cache_dtype string? of a cache made for the call
---@field slide boolean? where the cache is full: begin anew with the last half
---@field mesh Mesh? default the model's
---@field rules table? default the model's

return lib.export(M)
