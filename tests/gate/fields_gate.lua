-- Programs that users read name nothing of the library that is not there: recipes, scripts, the blocks and words of
-- documents. fields.lua says how it is found out; programs with known faults show that it is.
local gate = require "gate"
local fields = require "fields"

local PRELUDE = 'local ml = require "meshlua"\nlocal nn, optim = ml.nn, ml.optim\n'
local looked = 0

-- ---- is it found? -------------------------------------------------------------------------------------------

for faulty, wanted in pairs {
  ["ml.zerros({2})"] = "there is no ml.zerros", ["nn.Linaer(2, 3)"] = "there is no ml.nn.Linaer",
  ["ml.ones({2}):summ()"] = "Tensor has no method 'summ'",
  ["local x = ml.ones {2}\nprint(x.shap)"] = "no field 'shap'",
  ["local l = nn.Linear(2, 3, {rng = 1})"] = "nn.Linear has no option 'rng'",
  ["local f = ml.jit(function() end, {donat = 1})"] = "jit has no option 'donat'",
  ["local f = ml.jit(function() end)\nf:plann()"] = "jit has no method 'plann'",
  ["x:sum {keepdim = true}"] = "", ["ml.ones({2}):sum {keepdim = true}"] = "sum has no option 'keepdim'",
  ["a:matmull(b)"] = "nothing has a method 'matmull'", ["function A:mine() end\na:mine()"] = "",
  ["local m = ml.make_mesh({8}, {'x'})\nprint(m.names)"] = "Mesh has no field 'names'",
} do
  local found = fields.check(PRELUDE .. faulty)
  local right = #found == (wanted == "" and 0 or 1) and (found[1] or ""):find(wanted, 1, true)
  if not right then gate.fail("fields.lua", "of '%s' it says '%s'", faulty, table.concat(found, ", ")) end
  looked = looked + 1
end

-- ---- programs -----------------------------------------------------------------------------------------------

--- What is shown as an error.
local meant = {["docs/language.md"] = {"ml.nn.Linaer", "ml.matmull", "ml.array", "ml.nn.Dense", "ml.f"}}

--- Notes what is found, but for what is meant.
local function note(file, place, found)
  for _, line in ipairs(found) do
    local is_meant = false
    for _, name in ipairs(meant[file] or {}) do is_meant = is_meant or line:find("no " .. name .. "$") end
    if not is_meant then gate.fail(place, "%s", line) end
  end
end

local function hold(file, text, own)
  looked = looked + 1
  local found, defined = fields.check(text, own)
  note(file, file, found)
  return defined
end

for _, pattern in ipairs {"^models/.*%.lua$", "^docs/.*%.lua$", "^bench/.*%.lua$"} do
  for _, file in ipairs(gate.files(pattern)) do
    if not file:find "^docs/types/" then hold(file, gate.read(file)) end
  end
end

--- The programs of a document, each with empty lines in front, so that lines have their numbers; and its prose.
local function parts_of(file)
  local programs, current, prose, at, kind = {}, nil, {}, 0, nil
  local function begin()
    current = {}
    for i = 1, at - 1 do current[i] = "" end
    programs[#programs + 1] = current
  end
  local text = gate.read(file)
  for line in text:gmatch "([^\n]*)\n" do
    at = at + 1
    local fence = line:match "^%s*```(.*)$"
    if fence then kind = not kind and fence or nil end
    if kind == "lua" and not fence and (not current or line:find 'require "meshlua"') then begin() end
    if current then current[at] = (kind == "lua" and not fence) and line or "" end
    prose[at] = kind and "" or line
  end
  return programs, prose
end

for _, file in ipairs(gate.files "%.md$") do
  local programs, prose = parts_of(file)
  local own
  for _, program in ipairs(programs) do own = hold(file, table.concat(program, "\n"), own) end
  for at, line in ipairs(prose) do
    for span in line:gmatch "`([^`]*)`" do
      if span:find "%f[%w_]ml%.%a" or span:find "%f[%w_.]nn%.%a" or span:find "%f[%w_.]optim%.%a" then
        looked = looked + 1
        note(file, ("%s:%d"):format(file, at), (fields.check(PRELUDE .. span, own)))
      end
    end
  end
end

gate.finish(looked, "write a name that is there: `meshlua help NAME` says what there is.")
