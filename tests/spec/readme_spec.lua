-- readme_spec.lua: the README's program does what the README says.
local helper = require "spec.helper"

describe("the README", function()
  it("has a program that runs", function()
    local handle <close> = assert(io.open "README.md")
    local program = assert(handle:read("a"):match "```lua\n(.-)```")
    local out, err, code = helper.run {"--devices=8", helper.file(program, ".lua")}
    assert.equal("", err)
    assert.equal(0, code)
    assert.truthy(out:find("float32[32@data,128] on Mesh(data=4, model=2)", 1, true), out)
    assert.truthy(out:find("all_reduce", 1, true), out)
  end)
end)
