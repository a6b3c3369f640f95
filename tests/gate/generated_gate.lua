-- What docs/generate.lua makes is what is there: pages, definitions for editors, the manual page, completions. It runs
-- every example of the pages.
local gate = require "gate"

local program = assert(arg[1], "the folder of the build") .. "/meshlua"
local folder = os.tmpname()
os.remove(folder)

local command = ("'%s' --devices=8 docs/generate.lua '%s' 2>&1 || echo failed; true"):format(program, folder)
local said = gate.output(command)
for _, line in ipairs(said) do gate.fail("docs/generate.lua", "%s", line) end

local looked, is_made = 0, {}
for _, path in ipairs(gate.output(("find '%s' -type f"):format(folder))) do
  local file = "docs" .. path:sub(#folder + 1)
  looked, is_made[file] = looked + 1, true
  local handle = io.open(file, "rb")
  local text = handle and handle:read "a"
  if handle then handle:close() end
  if text ~= gate.read(path) then
    gate.fail(file, text and "it is not what is made now" or "it is not there")
  end
end
for _, pattern in ipairs {"^docs/api/", "^docs/types/", "^docs/completions/"} do
  for _, file in ipairs(gate.files(pattern)) do
    if not is_made[file] then gate.fail(file, "nothing makes it") end
  end
end
os.execute(("rm -r '%s'"):format(folder))
gate.finish(looked, [[build/meshlua --devices=8 docs/generate.lua writes them anew; read the difference, and
commit it.]])
