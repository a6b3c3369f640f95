-- devices: 8
-- mesh_spec.lua: meshes from sizes and from devices, what they say of themselves, and the context. The
-- numbers are
-- those of the checklist of JAX's semantics, where there is one.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding

describe("Mesh", function()
  it("M1: has a name for each level of the device list; one axis may be a text", function()
    local mesh = ml.Mesh({{0, 1, 2}, {3, 4, 5}}, {"x", "y"})
    assert.same({2, 3}, mesh.axis_sizes)
    assert.same({"x", "y"}, mesh.axis_names)
    assert.same({3}, ml.Mesh({0, 1, 2}, "all").axis_sizes)
    assert.same({1, 1, 2}, ml.Mesh({{{7, 2}}}, {"a", "b", "c"}).axis_sizes)
    helper.raises("[E_MESH] Mesh: 1 name for a device list of rank 2", ml.Mesh, {{0, 1}, {2, 3}}, {"a"})
    helper.raises("[E_MESH] mesh: the name of axis 2 is not a string", ml.Mesh, {{0}, {1}}, {"a", false})
    helper.raises("[E_MESH] mesh: axis 1 has no name", ml.Mesh, {0, 1}, {""})
    helper.raises("[E_MESH] mesh: two axes are called 'a'", ml.Mesh, {{0, 1}, {2, 3}}, {"a", "a"})
  end)

  it("M1: refuses what is no list of devices", function()
    helper.raises("[E_MESH] mesh: the device list is ragged", ml.Mesh, {{0, 1}, {2}}, {"a", "b"})
    helper.raises("[E_MESH] mesh: the device list is ragged", ml.Mesh, {{0, 1}, 2}, {"a", "b"})
    helper.raises("[E_MESH] mesh: the device list is ragged", ml.Mesh, {0, {1}}, {"a"})
    helper.raises("[E_MESH] mesh: device 1 is listed twice", ml.Mesh, {{0, 1}, {2, 1}}, {"a", "b"})
    helper.raises("[E_MESH] mesh: device 2 is listed twice", ml.Mesh, {0, 2, 1, 2}, "a")
    helper.raises("[E_MESH] mesh: there is no device 8; there are devices 0..7", ml.Mesh, {0, 8}, "a")
    helper.raises("[E_MESH] mesh: there is no device -1", ml.Mesh, {-1}, "a")
    helper.raises("[E_MESH] mesh: devices are ids (0-based), not a number", ml.Mesh, {0.5}, "a")
    helper.raises("[E_MESH] mesh: devices are ids (0-based), not a string", ml.Mesh, {"0"}, "a")
    helper.raises("[E_MESH] Mesh: expected a list of device ids and a list of names", ml.Mesh, 0, {})
    local cyclic = {}
    cyclic[1] = cyclic
    helper.raises("[E_MESH] mesh: the device list has more than 8 levels", ml.Mesh, cyclic, "a")
  end)

  it("M2: is one for the same devices and names", function()
    local a, b = ml.Mesh({{0, 1}, {2, 3}}, {"x", "y"}), ml.make_mesh({2, 2}, {"x", "y"}, {0, 1, 2, 3})
    assert.is_true(a == b)
    assert.is_false(a == ml.Mesh({{0, 1}, {3, 2}}, {"x", "y"}))
    assert.is_false(a == ml.Mesh({{0, 1}, {2, 3}}, {"x", "z"}))
    assert.is_false(a == ml.Mesh({0, 1, 2, 3}, "x"))
    assert.is_true(NamedSharding(a, P "x") == NamedSharding(b, P "x"))
    -- What it gives is a copy.
    a.axis_sizes[1], a.device_ids[1], a.devices[1][1], a.shape.x = 9, 9, 9, 9
    assert.same({2, 2}, a.axis_sizes)
    assert.same({0, 1, 2, 3}, a.device_ids)
    assert.same({{0, 1}, {2, 3}}, a.devices)
    assert.same({x = 2, y = 2}, a.shape)
    assert.falsy(pcall(function() a.axis_sizes = {} end))
  end)

  it("M4: make_mesh takes all devices, in order, the last axis fastest", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    assert.same({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, mesh.devices)
    assert.same({{7, 6}}, ml.make_mesh({1, 2}, {"a", "b"}, {7, 6}).devices)
    helper.raises("[E_MESH] mesh: the sizes multiply to 16, but there are 8 devices; change the sizes, ask "
      .. "for devices "
      .. "with --devices=16, or pass the devices to use", ml.make_mesh, {4, 4}, {"x", "y"})
    helper.raises("[E_MESH] mesh: the sizes multiply to 4, but there are 8 devices", ml.make_mesh, {4}, {"x"})
    helper.raises("[E_MESH] mesh: the sizes multiply to 2, but there are 3 devices", ml.make_mesh, {2}, {"x"},
      {0, 1, 2})
    helper.raises("[E_MESH] make_mesh: the size of axis 'y' is 2.5; sizes are whole numbers", ml.make_mesh,
      {4, 2.5},
      {"x", "y"})
    helper.raises("[E_MESH] make_mesh: the size of axis 'x' is 0", ml.make_mesh, {0}, {"x"})
    helper.raises("[E_MESH] make_mesh: the size of axis 'x' is -8", ml.make_mesh, {-8}, {"x"})
    helper.raises("[E_MESH] make_mesh: 2 sizes but 1 name", ml.make_mesh, {4, 2}, {"x"})
    helper.raises("[E_MESH] make_mesh: expected a list of sizes and a list of names", ml.make_mesh, 8, "x")
    helper.raises("mesh: size: 1099511627776 is out of range", ml.make_mesh, {1 << 40}, {"x"})
    helper.raises("the sizes multiply to 4294967296", ml.make_mesh, {1 << 16, 1 << 16}, {"x", "y"})
    helper.raises("mesh: 9 axes; at most 8", ml.make_mesh, {1, 1, 1, 1, 1, 1, 1, 1, 8},
      {"a", "b", "c", "d", "e", "f", "g", "h", "i"})
  end)

  it("M5: says its shape by name, and names what it does not have", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    assert.same({data = 4, model = 2}, mesh.shape)
    assert.equal(8, mesh.size)
    assert.equal("Mesh(data=4, model=2) of devices {{0,1},{2,3},{4,5},{6,7}}", tostring(mesh))
    assert.same({0, 1, 2, 3, 4, 5, 6, 7}, mesh.local_devices)
    assert.is_true(mesh.local_mesh == mesh)
    assert.is_false(mesh.is_multi_process)
    assert.is_true(mesh.abstract_mesh == ml.AbstractMesh({4, 2}, {"data", "model"}))
    helper.raises("[E_KEY] a Mesh has no field or method 'shapes'; did you mean 'shape'?",
      function() return mesh.shapes end)
    helper.raises("[E_VALUE] mesh: field: expected a string, got number", function() return mesh[1] end)
  end)

  it("M6: an abstract one has names and sizes, and no devices", function()
    local mesh = ml.AbstractMesh({512, 8}, {"data", "model"})
    assert.equal("AbstractMesh(data=512, model=8)", tostring(mesh))
    assert.same({data = 512, model = 8}, mesh.shape)
    assert.equal(4096, mesh.size)
    assert.is_true(mesh.is_abstract and mesh == ml.AbstractMesh({512, 8}, {"data", "model"}))
    assert.is_true(mesh.abstract_mesh == mesh)
    assert.is_false(ml.AbstractMesh({4, 2}, {"x", "y"}) == ml.make_mesh({4, 2}, {"x", "y"}))
    assert.same({2, 16}, NamedSharding(mesh, P("data", "model")):shard_shape {1024, 128})
    assert.is_false(NamedSharding(mesh, P()).is_fully_addressable)
    for _, field in ipairs {"devices", "device_ids", "local_devices", "local_mesh", "is_multi_process"} do
      helper.raises("[E_MESH] an AbstractMesh has no " .. field .. "; make_mesh puts one of its shape on "
        .. "devices", function() return mesh[field] end)
    end
    helper.raises("[E_MESH] AbstractMesh: 2 sizes but 1 name", ml.AbstractMesh, {2, 2}, {"x"})
    helper.raises("[E_MESH] AbstractMesh: the size of axis 'x' is 0", ml.AbstractMesh, {0}, {"x"})
  end)

  it("M1: without axes is one device", function()
    local mesh = ml.make_mesh({}, {}, {3})
    assert.equal(1, mesh.size)
    local x = ml.device_put(ml.ones {2}, NamedSharding(mesh, P()))
    assert.equal("float32[2]", ml.typeof(x))
    assert.equal(3, x:addressable_shards()[1].device)
  end)

  it("M10: keeps axes of size 1 in print, and ignores them in comparison", function()
    local mesh = ml.make_mesh({8, 1}, {"x", "y"})
    local x = ml.device_put(ml.ones {8, 2}, NamedSharding(mesh, P("x", "y")))
    assert.equal("float32[8@x,2@y]", ml.typeof(x))
    assert.is_true(x.sharding == NamedSharding(mesh, P "x"))
    assert.is_true(NamedSharding(mesh, P {"y", "x"}) == NamedSharding(mesh, P("x", {})))
    assert.is_false(x.sharding == NamedSharding(mesh, P(nil, "x")))
  end)
end)

describe("mesh:with", function()
  local mesh = ml.make_mesh({4, 2}, {"data", "model"})

  it("M7: lets a bare P be a sharding, and gives what the function gives", function()
    local a, b, c = mesh:with(function(x, y)
      return ml.device_put(x, P "data"), ml.ones({8}):constrain(P "model"), y
    end, ml.ones {8}, "last")
    assert.is_true(a.sharding == NamedSharding(mesh, P "data"))
    assert.is_true(b.sharding == NamedSharding(mesh, P "model"))
    assert.equal("last", c)
  end)

  it("M7: ends with the function, also by an error; outside a bare P is an error that says so", function()
    local message = "[E_MESH] a bare P requires a mesh in context; use NamedSharding(mesh, P(...)), or "
      .. "call this inside "
      .. "mesh:with(rules, fn)"
    helper.raises("raised", mesh.with, mesh, function() error "raised" end)
    helper.raises(message, ml.device_put, ml.ones {8}, P "data")
    helper.raises(message, function() return ml.ones({8}):constrain(P "data") end)
    helper.raises(message, ml.jit(function(x) return x:constrain(P "data") end), ml.ones {8})
    helper.raises(message, ml.jit(function(x) return x end, {in_shardings = P "data"}), ml.ones {8})
  end)

  it("M7: set_mesh is a setter, and a scope where it is closed", function()
    assert.is_nil(ml.get_mesh())
    do
      local _ <close> = ml.set_mesh(mesh)
      assert.is_true(ml.get_mesh() == mesh)
      assert.is_true(ml.device_put(ml.ones {8}, P "data").sharding == NamedSharding(mesh, P "data"))
      local line = ml.make_mesh({8}, {"all"})
      ml.set_mesh(line)
      assert.is_true(ml.get_mesh() == line)
      line:with(function() assert.is_true(ml.get_mesh() == line) end)
    end
    assert.is_nil(ml.get_mesh())
    ml.set_mesh(mesh)
    ml.jit(function(x)
      assert.is_true(ml.get_mesh() == mesh)
      helper.raises("[E_STATE] set_mesh inside a traced function", ml.set_mesh, nil)
      return x
    end)(ml.ones {8})
    ml.set_mesh(nil)
    assert.is_nil(ml.get_mesh())
    helper.raises("[E_VALUE] set_mesh: expected a Mesh or nil, got a table", ml.set_mesh, {})
    helper.raises("[E_MESH] a bare P requires a mesh in context", ml.device_put, ml.ones {8}, P "data")
  end)

  it("M7: can be nested; the inner one counts", function()
    local line = ml.make_mesh({8}, {"all"})
    mesh:with({{"batch", "data"}}, function()
      line:with({{"batch", "all"}}, function()
        assert.is_true(ml.ones({8}):constrain {"batch"}.sharding == NamedSharding(line, P "all"))
      end)
      assert.is_true(ml.ones({8}):constrain {"batch"}.sharding == NamedSharding(mesh, P "data"))
      helper.raises("axis 'all' is not an axis of Mesh(data=4, model=2)", ml.device_put, ml.ones {8}, P "all")
      mesh:with(function() -- without rules
        helper.raises("mean nothing without rules", function() return ml.ones({8}):constrain {"batch"} end)
      end)
    end)
  end)

  it("M7: refuses what is no function or no rules", function()
    helper.raises("[E_VALUE] with: expected a function, got nil", mesh.with, mesh)
    helper.raises("[E_VALUE] with: expected a function, got nil", mesh.with, mesh, {})
    helper.raises("rules: entry 1 is neither", mesh.with, mesh, {"batch"}, print)
    helper.raises("rules: expected a list", mesh.with, mesh, 1, print)
  end)
end)

describe("devices", function()
  it("M4: are numbered from 0", function()
    assert.equal(8, ml.device_count())
    assert.same({0, 1, 2, 3, 4, 5, 6, 7}, ml.devices())
  end)

  it("that are fake have no values: texts say that a result was planned and not run, reads raise", function()
    local out, err, code = helper.run {"--devices=fake:8", helper.file [[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({8}, {"x"})
      local x = ml.ones {8}
      local put = ml.device_put(x, ml.NamedSharding(mesh, ml.P "x"))
      local box = ml.nn.Param(put)
      local loss, grads = ml.jit(ml.value_and_grad(function(v) return (v * v):sum() end))(put)
      for i, v in ipairs {x, put, put + 1, loss, grads, ml.random.normal(ml.random.key(0), {2}),
        ml.cond(loss:gt(0), function() return loss end, function() return loss end)} do
        local text = tostring(v)
        assert(text:find " %(planned, not run: the devices are fake%)$" and not text:find "\n", text)
        for _, read in ipairs {"item", "totable", "bytes"} do
          local one = read == "item" and v:sum() or v
          local ok, message = pcall(one[read], one)
          assert(not ok and message:find("needs values, but this was planned and not run", 1, true), message)
        end
      end
      assert(tostring(box):find "planned, not run")
      assert(not pcall(string.format, "%g", loss) and tonumber(loss) == nil)
      ml.jit(function(v) ml.debug_print("v is %s", v) return v end)(put)
    ]]}
    assert.same({"v is float32[8@x] on Mesh(x=8) (planned, not run: the devices are fake)\n", 0},
      {out, code}, err)
  end)

  it("cannot be none, or fewer; the flag says what can be", function()
    for _, wrong in ipairs {"0", "-1", "x", "8x", "1.5", "99999999", "fake:0", "fake:x:4", "fake:"} do
      local out, err, code = helper.run {"--devices=" .. wrong, "-e", "print(1)"}
      assert.equal(2, code)
      assert.equal("", out)
      assert.equal("meshlua: [E_MESH] --devices=" .. wrong
        .. ": expected a number of virtual CPU devices from 1 to "
        .. "65535, cuda, cuda:0,1, cuda:0*8, fake:N, or fake:KIND:N (cpu, a100, h100, h200, ...), where N "
        .. "may be HOSTSxDEVICES\n", err)
    end
    for _, wrong in ipairs {"cuda0", "cudaX0", "cuda:", "cuda: 0", "cuda:+0", "cuda:-1", "cuda:x", "cuda:0,",
      "cuda:0,0", "cuda:0*", "cuda:0*0", "cuda:0* 2", "cuda:0*2x", "cuda:99999999999", "cuda:0*70000"} do
      local out, err, code = helper.run {"--devices=" .. wrong, "-e", "print(1)"}
      assert.same({"", "meshlua: [E_MESH] --devices=" .. wrong .. ": expected cuda, cuda:2 (a GPU by its "
        .. "index), cuda:0,1 (several) or cuda:0*8 (eight virtual devices on it)\n", 2}, {out, err, code})
    end
  end)
end)
