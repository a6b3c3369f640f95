-- tokenize.lua: the verb `tokenize`: texts as a file of ids, by a tokenizer that is there or one learnt from them. What
-- it makes takes its name when it is whole.
local core = require "meshlua.core"
local folder_of = require "meshlua.checkpoint.folder"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local refuse = require "meshlua.tokenizer.refuse"
local tokenizer = require "meshlua.tokenizer"

local M = {}

-- llm.c's token files: the first number and the version by the bytes of an id; the count has 32 bits.
local HEADERS, HEADER, MOST = {[2] = {20240520, 1}, [4] = {20240801, 7}}, 1024, (1 << 31) - 1

local function part(path) return path .. ".part" end

--- The texts of the files; or nil, message, code.
local function open(files)
  local texts = {}
  for i, path in ipairs(files) do
    local message, code
    texts[i], message, code = tokenizer.text_of(path)
    if not texts[i] then return nil, message, code end
  end
  return texts
end

--- The tokenizer that is there, or one learnt from the texts.
local function tokenizer_of(texts, flags)
  local pattern = flags.pattern ~= "" and flags.pattern or nil
  if flags.tokenizer ~= "" then return tokenizer.tokenizer(flags.tokenizer, {pattern = pattern}) end
  return refuse.caught(function()
    return tokenizer.make(require("meshlua.tokenizer.learn").fields(function(add, is_local)
      for _, text in ipairs(texts) do
        for piece in tokenizer.pieces(text, is_local) do add(piece) end
      end
    end, {size = flags.learn, pattern = pattern}))
  end, "--learn=" .. flags.learn)
end

--- Writes the ids into a file beside its place; their number, or nil, message, code.
local function write_ids(path, made, texts, files, flags)
  local options = {special = flags.special, bos = made.bos ~= nil, eos = made.bos == nil and made.eos ~= nil}
  local count, head = 0, HEADERS[made.width]
  local file <close>, message = io.open(part(path), "wb")
  if not file then return nil, message, "E_IO" end
  local ok, why = file:write(("\0"):rep(HEADER))
  for i, text in ipairs(texts) do
    local n, wrong, code = tokenizer.pack(made, text, options, function(packed)
      if ok then ok, why = file:write(packed) end
    end)
    if not n then return nil, files[i] .. ": " .. wrong, code end
    count = count + n
    if count > MOST then
      return nil, ("%s: more than %d ids by the end of %s; a token file counts no further, make several")
        :format(path, MOST, files[i]), "E_VALUE"
    end
  end
  ok = ok and file:seek "set"
  if ok then ok, why = file:write(string.pack("<i4i4i4", head[1], head[2], count)) end
  if ok then ok, why = file:close() end
  if not ok then return nil, ("%s: %s"):format(path, why or "it cannot be written"), "E_IO" end
  return count
end

local function check(path, beside, flags)
  if path == "" then return "it needs -o FILE" end
  if (flags.tokenizer ~= "") == (flags.learn ~= 0) then
    return "of --tokenizer=PATH and --learn=N one says which tokenizer"
  end
  for _, name in ipairs(flags.overwrite and {} or {path, beside}) do
    if core.path_kind(name) then
      return name .. ": it is there; take another name, or --overwrite to replace it"
    end
  end
end

---@return nil, string? message, string? code
function M.run(...)
  local files = {...}
  local flags = table.remove(files)
  local path = flags.out
  local beside = flags.learn ~= 0 and path:gsub("%.bin$", "") .. ".tokenizer.json" or nil
  local wrong = check(path, beside, flags)
  if wrong then return nil, wrong, "E_VALUE" end
  local texts, message, code = open(files)
  if not texts then return nil, message, code end
  local made, count
  made, message, code = tokenizer_of(texts, flags)
  if not made then return nil, message, code end
  local _ <close> = setmetatable({}, {__close = function() -- also where Ctrl-C ends it
    os.remove(part(path))
    if beside then os.remove(part(beside)) end
  end})
  count, message, code = write_ids(path, made, texts, files, flags)
  if not count then return nil, message, code end
  local at, calls = folder_of.of(path), {}
  if beside then calls = {{"write", part(beside), require("meshlua.tokenizer.save").text(made)},
    {"move", part(beside), beside}} end
  calls[#calls + 1] = {"move", part(path), path}
  calls[#calls + 1] = {"sync", at == "" and "." or at}
  local ok
  ok, message = core.disk_task(calls):wait()
  if not ok then return nil, message, "E_IO" end
  if flags.json then
    print(json.encode {path = path, ids = count, size = made.size, tokenizer = beside or flags.tokenizer})
  else
    print(("%s: %s of a vocabulary of %d"):format(path, lib.count(count, "id"), made.size))
    if beside then print(("%s: the tokenizer"):format(beside)) end
  end
end

return M
