-- memory.lua: see memory.py.
local train = require "train"

return function(p)
  local case = train(p)
  local plan_of = case.plan
  function case.info()
    local list = {}
    for _, b in ipairs(plan_of():buffers()) do
      if not b.takes then list[#list + 1] = {b.kind, b.bytes, b.first, b.last} end
    end
    return {buffers = list}
  end
  return case
end
