-- sharded_spec.lua: the specs that run on several devices, on as many virtual ones of a GPU that the stand-ins
-- play (standin/).
--
-- `build/meshlua -e ALL=1 tests/specs.lua tests/cuda/sharded_spec.lua` runs all of them, `--filter=op/sharded`
-- before the file some. It takes long where nothing is compiled yet: each kernel is a call of the compiler.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell = helper.shell

local ALL = rawget(_G, "ALL")
local ALWAYS = {["spec/layout/halo"] = true, ["spec/layout/put"] = true}

describe("on virtual devices of a GPU", function()
  local files = shell "grep -lr --include='*_spec.lua' -e '^-- devices: *[0-9]' tests/spec | sort"
  for file in files:gmatch "%S+" do
    local name = file:match "^tests/(.*)_spec%.lua$"
    if ALWAYS[name] or ALL then
      standin.it(name, function()
        if helper.watched then helper.pending "a sanitizer makes the GPU that runs on the CPU too slow" end
        local out, err, code = shell(([[export LD_LIBRARY_PATH='%s' MESHLUA_CACHE='%s'
          "$MESHLUA" --devices=cuda:0*$(sed -n '1s/^-- devices: *//p' %s) tests/specs.lua %s]]):format(
          standin.folder, standin.cache, file, file))
        assert(code == 0, out .. err)
      end)
    end
  end
end)
