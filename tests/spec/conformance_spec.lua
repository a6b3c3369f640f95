-- devices: 8
-- conformance_spec.lua: programs drawn at random that JAX has run (tests/oracle/conformance.py): the same values, in
-- explicit mode the same layout, and the same refusals, but for the list of departures.
local conformance = require "spec.conformance"
local json = require "dkjson"
local ml = require "meshlua"

local corpus
do
  local file <close> = assert(io.open("tests/oracle/conformance.json"))
  corpus = assert(json.decode(file:read "a", 1, json.null))
end

--- Where we differ on purpose, by case: docs/jax-differences.md says why.
local departures = {}
for why, list in pairs {
  ["where: operands of several layouts meet as in other elementwise ops"] = {61, 67, 69},
  ["einsum: a batch dim that one side splits is split in the result"] = {82, 83},
  ["a reshape that keeps each device's elements works"] = {240},
  ["a merge of two split dims asks for the layout"] = {244},
  ["argmax over a split dim gathers it, as the type says"] = {266, 274, 282, 295},
  ["a lookup with split ids works"] = {309},
  ["psum of what is equal on all devices counts each"] = {413, 448},
  ["flip of a split dim asks"] = {189},
} do
  for _, id in ipairs(list) do departures[id] = why end
end

local function flat(x, out)
  if type(x) ~= "table" then
    out[#out + 1] = type(x) == "boolean" and (x and 1 or 0) or x
    return out
  end
  for _, y in ipairs(x) do flat(y, out) end
  return out
end

--- What is not as in JAX, or nil; and whether it is about values.
local function difference(case)
  local ok, result = pcall(conformance.result, case)
  if case.error then return ok and "JAX refuses it: " .. case.error or nil end
  if not ok then return "we refuse it: " .. tostring(result):gsub("\n.*", "") end
  local got, want = flat(result:totable(), {}), case.jax.values
  if #got ~= #want then return ("%d elements, JAX has %d"):format(#got, #want), true end
  for i, x in ipairs(want) do
    if math.abs(x - got[i]) > 1e-5 * (1 + math.abs(x)) then
      return ("element %d is %.9g, JAX has %.9g"):format(i, got[i], x), true
    end
  end
  if case.mode ~= "explicit" then return end
  local sharding = ml.NamedSharding(result.sharding.mesh, conformance.spec(case.jax.spec))
  if not result.sharding:is_equivalent_to(sharding, result.ndim) then
    return ("the layout is %s, JAX's %s"):format(tostring(result.sharding.spec), tostring(sharding.spec))
  end
end

describe("the corpus", function()
  it("is as large as it should be, and the list of departures as short", function()
    local n = 0
    for _ in pairs(departures) do n = n + 1 end
    assert.is_true(#corpus.cases >= 400, #corpus.cases .. " cases")
    assert.is_true(n <= 20, n .. " departures")
  end)
end)

local groups, names = {}, {}
for _, case in ipairs(corpus.cases) do
  local name = ("%s, %s mode"):format(case.family, case.mode)
  if not groups[name] then groups[name], names[#names + 1] = {}, name end
  table.insert(groups[name], case)
end

describe("programs that JAX has run:", function()
  for _, name in ipairs(names) do
    it(name, function()
      local wrong = {}
      for _, case in ipairs(groups[name]) do
        local text, of_values = difference(case)
        if text and (of_values or not departures[case.id]) then
          wrong[#wrong + 1] = ("case %d: %s"):format(case.id, text)
        elseif not text and departures[case.id] then
          wrong[#wrong + 1] = ("case %d is in the list of departures and does not depart"):format(case.id)
        end
      end
      assert.equal("", table.concat(wrong, "\n"))
    end)
  end
end)
