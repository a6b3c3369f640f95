-- devices: 8
-- placement_spec.lua: where JAX puts the shards of tensors, meshlua puts them (tests/oracle/placement.py). The
-- numbers are those of the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"
local oracle = require "spec.oracle"

local P, NamedSharding = ml.P, ml.NamedSharding
local jax = oracle.read "placement"

local function mesh_of(number)
  local m = jax.meshes[number + 1]
  return ml.make_mesh(m.sizes, m.names, m.devices)
end

local function spec_of(entries)
  local spec = {}
  for d, entry in ipairs(entries) do spec[d] = entry end
  return P(table.unpack(spec, 1, #spec))
end

local function describe_case(case)
  local entries = {}
  for d, entry in ipairs(case.spec) do entries[d] = "(" .. table.concat(entry, ",") .. ")" end
  return ("mesh %d, spec %s, shape %s"):format(case.mesh, table.concat(entries, " "),
    table.concat(case.shape, ","))
end

local code_of = {spec = "E_SPEC", rank = "E_SPEC", indivisible = "E_INDIVISIBLE"}

--- Raises unless the tensor 0, 1, ... of the case lies as JAX laid it.
local function check_place(case)
  local size = 1
  for _, n in ipairs(case.shape) do size = size * n end
  local s, is = NamedSharding(mesh_of(case.mesh), spec_of(case.spec)), case.is
  assert.same(is.shard_shape, s:shard_shape(case.shape))
  assert.equal(is.replicated, s.is_fully_replicated)
  assert.same(is.free, s.replicated_axes)
  local x = ml.device_put(ml.arange(size):reshape(case.shape), s)
  assert.equal(is.replicated, x.is_fully_replicated)
  local map, mine = s:devices_indices_map(case.shape), s:addressable_devices_indices_map(case.shape)
  local shards = x:addressable_shards()
  assert.equal(#is.devices, #shards)
  for i, want in ipairs(is.devices) do
    local device, index, replica_id, sum = table.unpack(want)
    local shard = shards[i]
    assert.same({device, index, replica_id}, {shard.device, shard.index, shard.replica_id})
    assert.same(index, map[device])
    assert.same(index, mine[device])
    assert.same(is.shard_shape, shard.data.shape)
    assert.equal(sum, shard.data:sum():item())
    assert.same(shard.data:totable(), x:addressable_data(i):totable())
  end
end

describe("placement as JAX " .. jax.jax, function()
  it("P3 P4 P5 N1 N2 N3 N5 N6: of 400 drawn meshes, specs and shapes", function()
    local errors = 0
    for _, case in ipairs(jax.places) do
      local function check() check_place(case) end
      if case.is.error then
        errors = errors + 1
        helper.raises("[" .. code_of[case.is.error] .. "]", check)
      else
        local ok, message = pcall(check)
        assert(ok, describe_case(case) .. ": " .. tostring(message))
      end
    end
    assert.equal(400, #jax.places)
    assert.truthy(errors > 80 and errors < 250, errors)
  end)

  it("N4: shardings are equivalent where JAX says so, of 300 drawn pairs", function()
    local single = ml.ones({2}).sharding
    local function sharding(pair)
      local mesh, spec = pair[1], pair[2]
      if type(spec) ~= "table" then return single end
      return NamedSharding(mesh_of(mesh), spec_of(spec))
    end
    local alike = 0
    for i, case in ipairs(jax.pairs) do
      local a, b = sharding(case.a), sharding(case.b)
      assert(a:is_equivalent_to(b, case.ndim) == case.same, ("pair %d: %s, %s"):format(i, tostring(a),
        tostring(b)))
      assert.equal(case.same, b:is_equivalent_to(a, case.ndim))
      alike = alike + (case.same and 1 or 0)
    end
    assert.equal(300, #jax.pairs)
    assert.truthy(alike >= 100, alike)
  end)
end)
