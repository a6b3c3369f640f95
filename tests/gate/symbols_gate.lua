-- A global symbol's name says where it lives: it begins with the name of its file, of the family that its
-- file belongs to (reshard_search.c is one of reshard's), or of a folder that it is in.
local gate = require "gate"
local build = assert(arg[1], "usage: symbols_gate.lua BUILD_FOLDER")

--- What folders are called in names.
local SHORT = {kernels = "k"}

--- Names by which others look for what a program or a library gives.
local GIVEN = {main = true, luaopen_meshlua = true}

local function begins_with(symbol, word) return symbol == word or symbol:sub(1, #word + 1) == word .. "_" end

local function fits(module, symbol)
  local file = module:match "[^/]+$"
  if begins_with(symbol, file:match "^[^_]+") then return true end
  for word in module:gmatch "[^/]+" do
    if begins_with(symbol, SHORT[word] or word) then return true end
  end
  return GIVEN[symbol]
end

--- What a sanitizer, the compiler or the header of NVTX adds.
local function is_foreign(symbol)
  return symbol:find "^__" or symbol:find "^asan%." or symbol:find "^%.L"
    or symbol:find "^nvtx" or symbol == "InitializeInjectionNvtx2_fnptr"
end

--- Objects of files that have gone stay in a build folder.
local function is_there(module)
  local handle = io.open(module .. ".c")
  return not module:find "^host/" or handle and handle:close()
end

local looked = 0
local command = ("find %s/CMakeFiles -name '*.c.o' -exec nm -A -g --defined-only {} +")
for _, line in ipairs(gate.output(command:format(build))) do
  local module, kind, symbol = line:match "%.dir/(.*)%.c%.o:%x* (%a) (%S+)$"
  if symbol and is_there(module) and not is_foreign(symbol) and not module:find "^tests/"
    and not module:find "^bench/" then
    looked = looked + 1
    if not fits(module, symbol) then gate.fail(module .. ".c", "global symbol %s (%s)", symbol, kind) end
  end
end
gate.finish(looked, "make the symbol static, or begin its name with its file or a folder that it is in.")
