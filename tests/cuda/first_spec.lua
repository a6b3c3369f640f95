-- first_spec.lua: script/test-gpu first, its rows and its table, on a GPU that the stand-ins play.
local helper = require "spec.helper"
local standin = require "cuda.standin"

local bin = helper.program():match "^(.*)/[^/]*$"

--- Runs the rows whose names have the text; the exit code and the table.
local function first(variables, filter)
  local out, _, code = helper.shell(([[
    t=$(mktemp)
    %s TABLE=$t LD_LIBRARY_PATH=%s MESHLUA_CACHE=%s "$MESHLUA" tests/gpu/first.lua %s '%s' >/dev/null
    code=$?; cat "$t"; rm "$t"; exit $code]]):format(variables, standin.folder, standin.cache, bin, filter))
  return code, out
end

describe("the first minutes with a GPU", function()
  standin.it("compare it with the processor", function()
    local code, out = first("", "matmul")
    assert.equal(0, code, out)
    assert.truthy(out:find "\nadd, matmul, softmax +ok +%d+ s  within %de%-%d+ of the processor\n", out)
  end)

  standin.it("end where nothing can work", function()
    local code, out = first("STANDIN_DRIVER=0", "")
    assert.equal(1, code)
    assert.truthy(out:find "\ndoctor +FAILED ", out)
    assert.truthy(out:find "\nGPT%-2 124M +0 s  not run: see doctor\n", out)
  end)

  standin.it("say what is wrong", function() -- device code that does nothing
    local code, out = first("STANDIN_DRY=1", "matmul")
    assert.equal(1, code)
    assert.truthy(out:find "\nadd, matmul, softmax +FAILED +%d+ s  differ by ", out)
  end)
end)
