-- A type's name stands for one thing: two files that define it are confused by readers and by debuggers. The
-- host is one scope; the kernels of each device, which see kernel.h alone, are others.
local gate = require "gate"

local SCOPES = {"^host/", "^kernels/cpu/", "^kernels/cuda/"}
local SEEN_BY_ALL = "^kernels/[%w_]+%.h$"

-- How a definition looks; a declaration ahead (typedef struct X X;) is none.
local FORMS = {
  "\n}%s*([A-Z]%w*)%s*;",
  "\nstruct ([A-Z]%w*)%s*{",
  "\ntypedef [^{};]-([A-Z]%w*)%s*%([^;{]*%)%s*;",
  "\ntypedef [%w_]+%s*%b()%s*([A-Z]%w*);",
}

local looked = 0
for _, scope in ipairs(SCOPES) do
  local first = {}
  for _, file in ipairs(gate.files "%.[ch]$") do
    if file:find(scope) or file:find(SEEN_BY_ALL) then
      local text = gate.read(file):gsub("/%*.-%*/", " ")
      for _, form in ipairs(FORMS) do
        for name in text:gmatch(form) do
          looked = looked + 1
          local other = first[name] or file
          first[name] = other
          if other ~= file then gate.fail(file, "the type %s is also defined in %s", name, other) end
        end
      end
    end
  end
end
gate.finish(looked, "name the type by what it is in its file's words: PlanCacheKey, not Key.")
