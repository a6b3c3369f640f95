-- text.lua: what recipes of language models share: windows of a text as data, the validation loss beside the
-- best count table, and a sample. The last tenth of a text is for validation.
local core = require "meshlua.core"
local data = require "meshlua.data"
local generate = require "meshlua.generate".generate
local losses = require "meshlua.nn.losses"
local ngram = require "meshlua.train.ngram"
local ops = require "meshlua.ops"
local watch = require "meshlua.train.watch"

local M = {}

local LONGEST_CONTEXT = 4 -- bytes, of the count tables
local SHORTEST_WORD = 4 -- letters: shorter ones are too easily hit

--- The ids of a text by a tokenizer, and how many bytes it has. Those of a file are kept between runs.
local function encoded(path, tokenizer)
  local bytes, message, code = data.tokens(path)
  if not bytes then return nil, message, code end
  if bytes:width() ~= 1 then
    return nil, path .. ": it holds ids, no text; --tokenizer is of texts", "E_VALUE"
  end
  if path == "bible:" then return tokenizer:tokens(bytes), #bytes end
  local documents
  documents, message, code = data.encode(assert(data.text(path)), tokenizer)
  if not documents then return nil, message, code end
  return documents.source:span(0), #bytes
end

--- A recipe's `data`: config.seq ids to a record. The default is the King James Bible, a byte an id.
---@param config table seq, vocab
---@param path string? see data.tokens
---@param tokenizer Tokenizer? gives the ids of a text
---@return table? data, string? message, string? code
function M.data(config, path, tokenizer)
  path = path or "bible:"
  local tokens, message, code, bytes
  if tokenizer and tokenizer.size > config.vocab then
    message = "the tokenizer has %d ids, and the vocabulary is of %d; set --vocab=%d"
    return nil, message:format(tokenizer.size, config.vocab, tokenizer.size), "E_VALUE"
  end
  if tokenizer then tokens, message, code = encoded(path, tokenizer)
  else tokens, message, code = data.tokens(path) end
  if not tokens then return nil, message, code end
  if tokenizer then bytes = message / #tokens end
  local largest = data.largest(tokens)
  if largest >= config.vocab then
    local file, byte = tokens:place(select(2, tokens:largest()))
    local text = "%s: id %d of the data is outside the vocabulary of %d, at byte %d; set --vocab"
    return nil, text:format(file, largest, config.vocab, byte), "E_VALUE"
  end
  local cut = #tokens - #tokens // 10
  local train, valid
  train, message, code = data.windows(tokens, config.seq, 0, cut)
  if not train then return nil, message, code end
  valid, message, code = data.windows(tokens, config.seq, cut)
  if not valid then return nil, message, code end
  local is_text = not tokenizer and tokens:width() == 1
  return {train = train, valid = valid, unit = "tok", tokens = tokens, cut = cut, is_text = is_text,
    per = is_text and "byte" or "token", bytes = is_text and 1 or bytes, tokenizer = tokenizer}
end

--- A recipe's `score`: the mean loss of each record, in nats per token.
function M.score(model, ids, labels)
  return ops.mean(losses.softmax_cross_entropy_with_integer_labels(model(ids), labels), 2)
end

--- A recipe's `evaluate`: the validation loss, and where all of a text was looked at that of the best count table on
--- the same bytes, which needs the whole text: process 0 counts.
---@param run Run
---@return {key: string, value: number, text: string?}[]
function M.evaluate(run)
  local d, seq = run.data, run.config.seq
  local loss, batches, all = run:mean(M.score)
  local rows = {{key = "validation_loss", value = loss,
    text = ("validation loss %s, on %sthe last tenth of the data"):format(watch.text(d, loss, all, all),
      batches < all and ("%d of %d batches of "):format(batches, all) or "")},
    {key = "bits_per_byte", value = watch.bits_per_byte(d, loss)}}
  if not d.is_text or batches < all or core.process_index() ~= 0 then return rows end
  -- The first byte of the validation part has nothing before it there: it is not predicted.
  local first = d.cut + 2
  local nats = ngram.cross_entropies(d.tokens:bytes(0, #d.tokens), d.cut, first, first + d.valid.n * seq - 1,
    LONGEST_CONTEXT)
  local best = 1
  for order, x in ipairs(nats) do best = x < nats[best] and order or best end
  rows[#rows + 1] = {key = "count_table", value = nats[best],
    text = ("best count table %.4f nats per byte (%d bytes of context)"):format(nats[best], best)}
  return rows
end

--- How many of a sample's words stand in the text, and how many it has. A word that the end cuts is left out.
local function known_words(sample, text)
  local set, known, n = {}, 0, 0
  for word in text:gmatch "%a+" do set[word] = true end
  for word in sample:gsub("%a+$", ""):gmatch "%a+" do
    if #word >= SHORTEST_WORD then
      n = n + 1
      known = known + (set[word] and 1 or 0)
    end
  end
  return known, n
end

--- config.sample ids that follow a line's end, as text.
local function drawn(run, model)
  local config, tokenizer = run.config, run.data.tokenizer
  local first = tokenizer and tokenizer:encode "\n" or {("\n"):byte()}
  local ids = generate(model, #first > 0 and first or {0}, {max_tokens = config.sample, seed = run.seed,
    temperature = config.temperature, rules = run.rules, slide = true})
  if tokenizer then
    for i, id in ipairs(ids) do -- of a vocabulary that is larger
      if id >= tokenizer.size then return tokenizer:decode(table.move(ids, 1, i - 1, 1, {})) .. "?" end
    end
    return tokenizer:decode(ids)
  end
  for i, id in ipairs(ids) do ids[i] = string.char(id) end
  return table.concat(ids)
end

--- A recipe's `sample`: config.sample ids at config.temperature, decided by the run's seed, and of bytes the share
--- of their words that the training text has, too. Process 0 draws them.
---@param run Run
---@return {key: string, value: any, text: string}[]
function M.sample(run)
  local d, config = run.data, run.config
  if not (d.is_text or d.tokenizer) or config.sample == 0 then return {} end
  local model = run:gathered():eval()
  if core.process_index() ~= 0 then return {} end
  local text = drawn(run, model):gsub("[^\n\32-\126\128-\255]", "?") -- nothing that moves a cursor
  local rows = {{key = "sample", value = text,
    text = ("sample at temperature %g:\n%s"):format(config.temperature, text)}}
  if not d.is_text then return rows end
  local known, n = known_words(text, d.tokens:bytes(0, d.cut))
  local share = n > 0 and known / n or 0.0
  rows[2] = {key = "known_words", value = share,
    text = ("%d of the sample's %d words of %d letters or more occur in the training text (%.0f%%)"):format(
      known, n, SHORTEST_WORD, 100 * share)}
  return rows
end

return M
