-- Files stay short enough to be read in one sitting.
local gate = require "gate"

local LIMIT, WANTED, HEADER = 800, 500, 150

local looked = 0
for _, folder in ipairs {"host", "kernels", "lualib", "models", "tests", "script", "bench"} do
  for _, file in ipairs(gate.files("^" .. folder .. "/")) do
    if not file:find "^tests/golden/.*%.txt$" and not file:find "^tests/oracle/.*%.json$" then
      local _, lines = gate.read(file):gsub("\n", "")
      looked = looked + 1
      if lines > LIMIT then
        gate.fail(file, "%d lines, more than %d", lines, LIMIT)
      elseif lines > WANTED then
        gate.note(file, "%d lines; %d are wanted", lines, WANTED)
      elseif file:find "%.c?u?h$" and lines > HEADER then
        gate.note(file, "%d lines; headers want %d", lines, HEADER)
      end
    end
  end
end
gate.finish(looked, "cut the file where a second purpose begins, and give the new file its own prefix.")
