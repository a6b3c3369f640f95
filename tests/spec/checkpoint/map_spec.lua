-- map_spec.lua: name maps, on lists of numbers in the place of files and tensors.
local helper = require "spec.helper"
local lib = require "meshlua.lib"
local map = require "meshlua.checkpoint.map"
local random_map = require "spec.checkpoint.random_map"

local product, each, written = lib.product, random_map.each, random_map.written

--- The entries of a file as lists, in the order of their names.
local function listed(files)
  local entries = {}
  for _, entry in pairs(files) do entries[#entries + 1] = entry end
  table.sort(entries, function(a, b) return a.name < b.name end)
  return entries
end

--- The tensors that a map reads from entries; targets: default what the rules say of the entries.
local function read(m, files, targets)
  local entries = listed(files)
  if not targets then
    local problems
    targets, problems = m:targets(entries)
    assert.same({}, problems)
  end
  local reading = m:read(entries, targets)
  assert.same({{}, {}, {}, {}}, {reading.problems, reading.missing, reading.unmatched, reading.unexpected})
  local tensors = {}
  for k, target in ipairs(targets) do
    assert.is_true(reading.complete[k])
    local t = {shape = target.shape}
    for _, piece in ipairs(reading.pieces[k]) do
      each(piece, target.shape, function(here, there)
        assert.is_nil(t[here + 1])
        t[here + 1] = entries[piece.entry][there + 1]
      end)
    end
    tensors[target.path] = t
  end
  return tensors
end

local function counted(shape, from)
  local t = {shape = shape}
  for k = 1, product(shape) do t[k] = (from or 0) + k end
  return t
end

local function both_ways(rules, numbers, tensors)
  local m = map.compile("test", rules, numbers)
  local files = written(m, tensors)
  local targets = {}
  for path, t in pairs(tensors) do targets[#targets + 1] = {path = path, shape = t.shape} end
  assert.same(tensors, read(m, files, targets))
  return files, m
end

describe("a name map", function()
  it("renames, with numbers that begin at 0 here and at 1 there", function()
    local files = both_ways({{"h.{i}.w", "h.{i+1}.kernel"}}, nil, {["h.1.kernel"] = counted {2},
      ["h.2.kernel"] = counted({2}, 10), ["h.11.kernel"] = counted({2}, 20)})
    assert.same({{name = "h.0.w", shape = {2}, 1, 2}, {name = "h.1.w", shape = {2}, 11, 12},
      {name = "h.10.w", shape = {2}, 21, 22}}, listed(files))
    files = both_ways({{"layer{i+1}.w", "h.{i}.kernel"}}, nil, {["h.0.kernel"] = counted {1}})
    assert.is_not_nil(files["layer1.w"])
    local m = map.compile("test", {{"h{i-1}", "g.{i}"}})
    assert.same({"g.1"}, {(m:targets {{name = "h0", shape = {}}})[1].path})
    for _, name in ipairs {"h01", "h", "hx"} do assert.same({}, (m:targets {{name = name, shape = {}}})) end
  end)

  it("without rules takes names as paths; {*} takes what is left", function()
    both_ways(nil, nil, {["a.b"] = counted {2, 3}, c = counted {}, d = counted {0, 4}})
    local files = both_ways({{"model.{*}", "{*}"}, {"w.{i}", "x.{i}", {"transpose"}}}, nil,
      {["x.3"] = counted {2, 3}, ["y.3"] = counted {2, 3}})
    assert.same({{name = "model.y.3", shape = {2, 3}, 1, 2, 3, 4, 5, 6},
      {name = "w.3", shape = {3, 2}, 1, 4, 2, 5, 3, 6}}, listed(files))
  end)

  it("cuts a product of three into query, key and value, with a dim of heads", function()
    local rules = {}
    for k, name in ipairs {"query", "key", "value"} do
      rules[k] = {"h.{i}.c_attn.weight", "h.{i+1}." .. name .. ".kernel", {"split", 2, 3, k},
        {"reshape", {"width", "heads", -1}}}
    end
    local tensors, numbers = {}, {width = 4, heads = 2}
    for k, name in ipairs {"query", "key", "value"} do
      tensors["h.1." .. name .. ".kernel"] = counted({4, 2, 2}, 100 * k)
    end
    local files, m = both_ways(rules, numbers, tensors)
    assert.same({4, 12}, files["h.0.c_attn.weight"].shape)
    assert.same({101, 102, 103, 104, 201, 202, 203, 204, 301, 302, 303, 304, 105},
      {table.unpack(files["h.0.c_attn.weight"], 1, 13)})
    assert.same(tensors, read(m, files))
  end)

  it("counts layers along a dim, two letters along two", function()
    local files, m = both_ways({{"l.{i}.w", "l.w", {"transpose"}, {"stack", 1}}}, nil,
      {["l.w"] = counted {3, 2, 4}})
    assert.is_not_nil(files["l.0.w"] and files["l.2.w"])
    assert.same({name = "l.1.w", shape = {4, 2}, 9, 13, 10, 14, 11, 15, 12, 16}, files["l.1.w"])
    assert.same({["l.w"] = counted {3, 2, 4}}, read(m, files))
    both_ways({{"l.{i}.e.{j}.w", "l.e.w", {"stack", 1, "j"}, {"stack", 1, "i"}}}, nil,
      {["l.e.w"] = counted {3, 2, 2, 2}})
    both_ways({{"l.{i}.e.{j}.w", "l.{i}.e.w", {"stack", 2}}}, nil, {["l.4.e.w"] = counted {3, 2, 2}})
  end)

  it("moves features of heads between neighbours and halves, as converters do", function()
    -- w.view(h, d/h/2, 2, in).transpose(1, 2): of one head of 6 rows: 0 2 4 1 3 5.
    local _, m = both_ways({{"q", "q", {"heads", 1, "n", "interleaved"}}}, {n = 2}, {q = counted {12, 1}})
    local files = {q = counted({12, 1}, -1)}
    files.q.name = "q"
    local t = read(m, files).q
    assert.same({0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}, {table.unpack(t)})
    m = map.compile("test", {{"q", "q", {"heads", 1, 2, "halves"}}})
    assert.same({0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}, {table.unpack(read(m, files).q)})
    both_ways({{"q", "q", {"heads", 1, 2, "halves"}, {"transpose"}, {"reshape", {3, 2, -1}}}}, nil,
      {q = counted {3, 2, 6}})
  end)

  it("joins entries into one tensor, of parts that may differ", function()
    local rules = {}
    for k, name in ipairs {"q", "k", "v"} do
      rules[k] = {name, "qkv", {"transpose"}, {"join", 2, {"a", 1, 1}, k}}
    end
    local files = both_ways(rules, {a = 2}, {qkv = counted {2, 4}})
    assert.same({name = "q", shape = {2, 2}, 1, 5, 2, 6}, files.q)
    assert.same({name = "v", shape = {1, 2}, 4, 8}, files.v)
    both_ways({{"qkv", "q", {"split", 1, {4, 2, 2}, 1}}, {"qkv", "k", {"split", 1, {4, 2, 2}, 2}},
      {"qkv", "v", {"split", 1, {4, 2, 2}, 3}}}, nil,
      {q = counted {4, 3}, k = counted({2, 3}, 50), v = counted({2, 3}, 70)})
  end)

  it("reads what lies by columns", function()
    local m = map.compile("test", {{"a", "a", {"transpose"}}, {"b", "b"}})
    local files = {a = {name = "a", shape = {2, 3}, column_major = true, 1, 2, 3, 4, 5, 6},
      b = {name = "b", shape = {2, 3}, column_major = true, 1, 2, 3, 4, 5, 6}}
    local t = read(m, files)
    assert.same({shape = {3, 2}, 1, 2, 3, 4, 5, 6}, t.a)
    assert.same({shape = {2, 3}, 1, 3, 5, 2, 4, 6}, t.b)
  end)

  it("ties, ignores, keeps, and lets a prefix stand before names", function()
    local m = map.compile("test", {{"wte", "embed"}, {"head", "head.kernel"}, {tie = "head", to = "wte"},
      {ignore = "inv_freq$"}, {keep = "^rng"}, {prefix = "t."}})
    local entries = {{name = "t.wte", shape = {2}}, {name = "x.inv_freq", shape = {1}}}
    local reading = m:read(entries, {{path = "embed", shape = {2}}, {path = "head.kernel", shape = {2}},
      {path = "rngs.count", shape = {1}}})
    assert.same({{}, {}, {}, {}}, {reading.problems, reading.missing, reading.unmatched, reading.unexpected})
    assert.same({1, 1}, {reading.pieces[1][1].entry, reading.pieces[2][1].entry})
    entries[3] = {name = "head", shape = {2}} -- of a model that has it twice; ours is tied
    reading = m:read(entries, {{path = "embed", shape = {2}}})
    assert.same({}, reading.unexpected)
  end)

  it("says what is missing, what nobody takes, and which shapes do not fit", function()
    local m = map.compile("test", {{"l.{i}.w", "l.w", {"transpose"}, {"stack", 1}}, {"b", "bias"},
      {"c", "c", {"split", 1, 3, 2}}})
    local entries = {{name = "l.0.w", shape = {4, 2}}, {name = "l.2.w", shape = {2, 4}},
      {name = "z", shape = {1}}}
    local reading = m:read(entries, {{path = "l.w", shape = {3, 2, 4}}, {path = "bias", shape = {1}},
      {path = "other", shape = {1}}})
    assert.same({{path = "l.w", name = "l.1.w"}, {path = "bias", name = "b"}}, reading.missing)
    assert.same({"other"}, reading.unmatched)
    assert.same({"z"}, reading.unexpected)
    assert.same({"l.2.w is [2,4] in the file; l.w [3,2,4] wants [4,2]"}, reading.problems)
    assert.same({false, false, false}, reading.complete)
    local _, _, problems = m:write {{path = "c", shape = {2}, dtype = "float32"}}
    assert.same({"c [6]: the model's tensors fill 2 of its 6 elements"}, problems)
    _, problems = m:targets {{name = "c", shape = {4}}}
    assert.same({"c [4]: split: cannot have the part 2 of 3 along dim 1 (rule 3)"}, problems)
  end)

  it("gives an entry that another tensor takes, too, no second meaning", function()
    local m = map.compile("test", {{"a", "a"}, {"a", "b"}})
    local _, _, problems = m:write {{path = "a", shape = {2}, dtype = "float32"},
      {path = "b", shape = {2}, dtype = "float16"}}
    assert.matches("b: as a part of a it would be float16%[2%], and a makes that float32%[2%]", problems[1])
    _, _, problems = m:write {{path = "a", shape = {2}, dtype = "float32"}, {path = "b", shape = {2},
      dtype = "float32"}}
    assert.same({"a [2]: the model's tensors fill 4 of its 2 elements"}, problems)
  end)

  it("is refused where a rule is none", function()
    for _, case in ipairs {
      {{{"a"}}, "has nil where the model's name should be"}, {{{"a{", "b"}}, "letters in braces"},
      {{{"a{ii}", "b"}}, "letters in braces"}, {{{"a{i+}", "b"}}, "letters in braces"},
      {{{"a", "b{i}"}}, "{i} in the model's path alone"}, {{{"a{i}", "b"}}, "a stack would count it"},
      {{{"a", "b", {"stack", 1}}}, "stack needs a letter"},
      {{{"a", "b", {"flip"}}}, "where a verb should be"},
      {{{"a", "b", {"splt", 1, 3, 1}}}, "did you mean 'split'"},
      {{{"a", "b", {"split", 1, 3, 4}}}, "takes a dim, how"},
      {{{"a", "b", {"split", 1, {2, 0}, 1}}}, "sizes of parts"},
      {{{"a", "b", {"split", 1, "heads", 1}}}, "give it in numbers: {heads = ...}"},
      {{{"a", "b", {"reshape", {2, 2}}}}, "does not say the file's shape"},
      {{{"a", "b", {"reshape", {-1, -1}}}}, "takes one %-1"},
      {{{"a", "b", {"transpose", {1, 1}}}}, "each dim once"},
      {{{"a", "b", {"heads", 1, 2}}}, "'interleaved' or 'halves'"},
      {{{"a{i}", "b", {"stack", 1}, {"transpose"}}}, "stack comes behind"}, {{{tie = "a"}}, "to nothing"},
      {{{ignore = "["}}, "no pattern"}, {{{drop = "a"}}, "has drop = a"},
      {{{"a", "b", transpose = true}}, 'verbs are lists: {"transpose"}'}, {{3}, "rules are tables"},
      {"x", "map must be a list"},
    } do
      local ok, message = pcall(map.compile, "load", case[1])
      assert.is_false(ok)
      assert.matches(case[2], message)
      assert.matches("load: map", message)
    end
    assert.has_error(function() map.compile("load", {{"a", "b", {"split", 1, "h", 1}}}, {h = "two"}) end)
  end)
end)

-- ---- random maps ------------------------------------------------------------------------------------

describe("random maps", function()
  it("and their inverses are the identity, to the file and back, and from it and back", function()
    local seed = helper.watched and 20 or 400
    math.randomseed(20, 26)
    local random, views = math.random, 0
    for _ = 1, seed do
      local shape = {}
      for d = 1, random(1, 4) do shape[d] = ({1, 2, 2, 3, 4, 6})[random(1, 6)] end
      local rules, tensors, stacked = {}, {}, random(1, 3)
      local chain, from = random_map.chain(random, shape)
      if stacked == 1 then -- layers along a dim
        local d = random(1, #shape + 1)
        rules[1] = {"f.{i}", "m", table.unpack(chain)}
        table.insert(rules[1], {"stack", d})
        table.insert(shape, d, random(1, 3))
        tensors.m = counted(shape)
      elseif stacked == 2 then -- parts of one entry
        local d, n = random(1, #from), random(1, 3)
        for k = 1, n do
          rules[k] = {"f.{i}", "m.{i+1}." .. k, {"split", d, n, k}, table.unpack(chain)}
          tensors["m.1." .. k], tensors["m.3." .. k] = counted(shape, 1000 * k), counted(shape, 5000 * k)
        end
      else -- entries that are parts of one tensor
        local d, n = random(1, #shape), random(1, 3)
        for k = 1, n do
          rules[k] = {"f.{i}." .. k, "m.{i}", table.unpack(chain)}
          table.insert(rules[k], {"join", d, n, k})
        end
        shape[d] = shape[d] * n
        tensors["m.7"] = counted(shape)
      end
      -- A chain may ask for what is no strided view; it says so, and does nothing.
      local m = map.compile("test", rules)
      local leaves = {}
      for path, t in pairs(tensors) do
        leaves[#leaves + 1] = {path = path, shape = t.shape, dtype = "float32"}
      end
      local _, _, problems = m:write(leaves)
      if #problems == 0 then
        local files = both_ways(rules, nil, tensors)
        assert.same(tensors, read(m, files)) -- shapes found from the file alone
        assert.same(files, written(m, read(m, files)))
        views = views + 1
      else
        assert.matches("no strided view", problems[1])
      end
    end
    assert.is_true(views > seed * 0.8)
  end)
end)
