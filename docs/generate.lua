-- generate.lua: writes what is made from the tables of the program: from that of public names (lualib/meshlua/exports/)
-- the pages of docs/api/ and the definitions for editors in docs/types/, from that of verbs and flags
-- (lualib/meshlua/program/verbs.lua) the manual page and the completions of shells. tests/gate/generated_gate.lua asks
-- whether what is there is what this makes.
--
--   build/meshlua --devices=8 docs/generate.lua [FOLDER]     default: docs
package.path = "docs/?.lua;" .. package.path

local api = require "generate.api"
local completions = require "generate.completions"

local folder = arg[1] or "docs"
local files = {["meshlua.1"] = require("generate.man").text(),
  ["types/meshlua.lua"] = require("meshlua.exports.types").text(),
  ["completions/meshlua.bash"] = completions.bash(), ["completions/_meshlua"] = completions.zsh(),
  ["completions/meshlua.fish"] = completions.fish()}
for name, text in pairs(api.pages()) do files["api/" .. name] = text end

assert(os.execute(("mkdir -p '%s/api' '%s/types' '%s/completions'"):format(folder, folder, folder)))
for name, text in pairs(files) do
  local file <close> = assert(io.open(folder .. "/" .. name, "wb"))
  assert(file:write(text))
end
