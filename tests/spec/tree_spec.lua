-- tree_spec.lua: nested tables with tensors at their leaves.
local helper = require "spec.helper"
local ml = require "meshlua"

local tree = ml.tree

local function none() end

local function param() return ml.core.box_new(ml.ones {1}, {kind = "param"}) end

describe("a tree", function()
  it("is visited in key order: numbers ascending, then strings bytewise", function()
    local t = {}
    for _, key in ipairs {"b", "a", "B", "_", 10, 2, -1, 1.5, "ab", "10"} do t[key] = ml.ones {1} end
    local _, paths = tree.leaves(t)
    assert.same({"-1", "1.5", "2", "10", "10", "B", "_", "a", "ab", "b"}, paths)
    assert.same({-1, 1.5, 2, 10, "10", "B", "_", "a", "ab", "b"}, ml.core.tree_keys(t))
  end)

  it("has tensors and Params as leaves, each once, with its path", function()
    local shared, box = ml.ones {1}, param()
    local t = {h = {{up = shared}, {up = shared, down = box}}, tied = box, n = 3, s = "x", f = print,
      b = true}
    local leaves, paths = tree.leaves(t)
    assert.same({"h.1.up", "h.2.down"}, paths)
    assert.is_true(rawequal(shared, leaves[1]) and rawequal(box, leaves[2]))
    leaves, paths = tree.leaves(shared)
    assert.is_true(rawequal(shared, leaves[1]))
    assert.same({""}, paths)
    assert.same({{}, {}}, {tree.leaves {}})
    assert.same({{}, {}}, {tree.leaves(3)})
    assert.is_true(tree.is_leaf(shared) and tree.is_leaf(box))
    assert.is_false(tree.is_leaf {} or tree.is_leaf(1) or tree.is_leaf(nil))
  end)

  it("visit calls the function for every leaf in order", function()
    local seen = {}
    tree.visit({b = ml.ones {2}, a = {ml.ones {3}}}, function(path, leaf) seen[#seen + 1] = {path,
      leaf.shape[1]} end)
    assert.same({{"a.1", 3}, {"b", 2}}, seen)
  end)
end)

describe("tree.map", function()
  it("gives a tree of the same structure; what is no leaf stays", function()
    local x = ml.ones {1}
    local out = tree.map(function(leaf) return leaf + 1 end, {a = x, b = {x, "s", 3}, f = print})
    assert.same({2.0}, out.a:totable())
    assert.same({"s", 3, print}, {out.b[2], out.b[3], out.f})
    assert.is_true(rawequal(out.a, out.b[1])) -- held twice, mapped once
    assert.same({2.0}, tree.map(function(leaf) return leaf * 2 end, x):totable())
    assert.equal(3, tree.map(print, 3))
  end)

  it("takes further trees, and names what they lack", function()
    local function t(n) return {a = ml.full({1}, n), b = {ml.full({1}, n)}} end
    local out = tree.map(function(x, y, z) return x + y * z end, t(1.0), t(2.0), t(3.0))
    assert.same({7.0}, out.b[1]:totable())
    assert.same({{"x"}}, {tree.map(function(_, other) return other end, {ml.ones {1}}, {"x"})})
    helper.raises("[E_VALUE] tree.map: tree 3 has nothing at b.1", tree.map, none, t(1.0), t(1.0),
      {a = 1, b = {}})
    helper.raises("[E_VALUE] tree.map: tree 2 has nothing at b.1", tree.map, none, t(1.0), {a = 1, b = 2})
    helper.raises("[E_VALUE] tree.map: tree 2 has nothing at a", tree.map, none, t(1.0), nil)
  end)

  it("passes on what the function raises", function()
    helper.raises("raised here", tree.map, function() error("raised here", 0) end, {ml.ones {1}})
  end)
end)

describe("tree.map_with_path", function()
  it("tells the function the path", function()
    assert.same({a = "a", b = {"b.1"}}, tree.map_with_path(function(path) return path end, {a = ml.ones {1},
      b = {param()}}))
  end)
end)

describe("tree.replace", function()
  it("puts other leaves in place of some, keeps metatables, and copies only what changes", function()
    local Class = {}
    local x, y = ml.ones {1}, param()
    local t = setmetatable({x = x, deep = setmetatable({y, 3}, Class), other = {x = y}}, Class)
    local out = tree.replace(t, {[x] = 5})
    assert.equal(5, out.x)
    assert.equal(Class, getmetatable(out))
    assert.is_true(rawequal(t.deep, out.deep) and rawequal(t.other, out.other))
    assert.is_true(rawequal(t, tree.replace(t, {})))
    assert.equal(7, tree.replace(x, {[x] = 7}))
    assert.is_true(rawequal(x, t.x))
  end)
end)

describe("tree.only", function()
  it("keeps the places of some leaves", function()
    local x, y = ml.ones {1}, param()
    local t = {a = x, b = {y, x, {y}}, n = 3}
    assert.same({b = {"y", nil, {"y"}}}, tree.only(t, {[y] = "y"}))
    assert.is_nil(tree.only(t, {}))
    assert.equal(1, tree.only(x, {[x] = 1}))
  end)
end)

describe("trees refuse", function()
  it("cycles, and name the place", function()
    local t = {a = {b = {}}}
    t.a.b.c = t.a
    local message = "[E_VALUE] tree: the table at a.b.c contains itself"
    helper.raises(message, tree.leaves, t)
    helper.raises(message, tree.visit, t, none)
    helper.raises(message, tree.map, none, t)
    helper.raises(message, tree.map, none, t, t)
    helper.raises(message, tree.map_with_path, none, t)
    helper.raises("contains itself", tree.replace, t, {})
    helper.raises("contains itself", tree.only, t, {})
    helper.raises("contains itself", ml.device_put, t, ml.NamedSharding(ml.make_mesh({1}, {"x"}, {0}),
      ml.P()))
    -- A table that is there twice is no cycle.
    local shared = {ml.ones {1}}
    assert.equal(1, #tree.leaves {shared, shared})
  end)

  it("keys that have no order", function()
    helper.raises("[E_VALUE] a table with a boolean as key cannot be an argument; use strings and numbers",
      tree.leaves,
      {[true] = ml.ones {1}})
    helper.raises("with a table as key", tree.map, none, {[{}] = 1})
    helper.raises("with a userdata as key", tree.leaves, {[ml.ones {1}] = 1})
  end)

  it("what is no function", function()
    helper.raises("[E_VALUE] tree.visit: expected a function, got nil", tree.visit, {})
    helper.raises("[E_VALUE] tree.map: expected a function, got a table", tree.map, {}, {})
    helper.raises("[E_VALUE] tree.map_with_path: expected a function, got a Tensor", tree.map_with_path,
      ml.ones {1}, {})
    helper.raises("[E_VALUE] tree.replace: expected a table", tree.replace, {}, 3)
    helper.raises("[E_VALUE] tree.only: expected a table", tree.only, {}, nil)
    -- What can be called is a function.
    assert.same({2.0}, tree.map(setmetatable({}, {__call = function(_, x) return x * 2 end}),
      ml.ones {1}):totable())
  end)
end)
