-- readme_spec.lua: the programs of the README and of docs/ do what is said there.
local helper = require "spec.helper"

--- What each program prints, at least.
local expected = {
  {"float32[32@data,128] on Mesh(data=4, model=2)", "all_reduce"},
  {'P("data", "model")', "float32[8@data,16@model]\tfloat32[8@data,32]",
    "contracting dims 2 of x and 1 of w are both sharded", "float32[8@data,32]\n"},
  {"float32[16@data,4]", "float32[6]", "float32[6,16@data,4]", "float32[16@data]"},
}

describe("the README", function()
  local handle <close> = assert(io.open "README.md")
  local programs = {}
  for program in handle:read("a"):gmatch "```lua\n(.-)```" do programs[#programs + 1] = program end

  it("has as many programs as are checked here", function() assert.equal(#expected, #programs) end)

  for i, program in ipairs(programs) do
    it("has a program that runs: " .. i, function()
      local out, err, code = helper.run {"--devices=8", helper.file(program, ".lua")}
      assert.equal("", err)
      assert.equal(0, code)
      for _, text in ipairs(expected[i]) do assert.truthy(out:find(text, 1, true), text .. " in\n" .. out) end
    end)
  end
end)

it("docs/processes.md has a program that runs", function()
  local handle <close> = assert(io.open "docs/processes.md")
  local program = handle:read("a"):match "```lua\n(.-)```"
  local out, err, code = helper.run {"--devices=8", helper.file(program, ".lua")}
  assert.same({"", 0}, {err, code})
  assert.truthy(tonumber(out))
end)
