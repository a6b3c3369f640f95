-- What scan, cond and the transforms stand on: a Lua function traced into a region.
local ml = require "meshlua"
local core = require "meshlua.core"

describe("trace_region", function()
  local x, y = ml.tensor({1.0, 2.0}), ml.tensor({{3.0, 4.0}, {5.0, 6.0}})

  local function in_trace(fn)
    local out
    ml.jit(function(a, b) out = table.pack(fn(a, b)); return a end)(x, y)
    return table.unpack(out, 1, out.n)
  end

  it("gives parameters the types of tensors, or of their slices", function()
    local types = in_trace(function(a, b)
      local seen = {}
      core.trace_region(function(p, s)
        seen = {core.typeof(p), core.typeof(s)}
        return p + s
      end, {a, b}, 1)
      return seen
    end)
    assert.same({"float32[2]", "float32[2]"}, types)
  end)

  it("takes outer values in as parameters, once, through every region between", function()
    local outer, inner, results = in_trace(function(a, b)
      local inner
      local _, outer, results = core.trace_region(function(p)
        local _, seen = core.trace_region(function(q) return q * a + a * b end, {p})
        inner = seen
        return p + a, ml.tensor({1.0, 1.0}) * p
      end, {a})
      return #outer, #inner, #results
    end)
    assert.same({3, 2, 2}, {outer, inner, results})
  end)

  it("leaves the trace as it was after an error", function()
    local step = ml.jit(function(a, b)
      assert(not pcall(core.trace_region, function() error("no", 0) end, {a}))
      assert(not pcall(core.trace_region, function(p)
        return core.trace_region(function() return "text" end, {p})
      end, {a}))
      return a + b
    end)
    assert.same({{4, 6}, {6, 8}}, step(x, y):totable())
  end)

  it("refuses a value that was kept beyond its region", function()
    local ok, message = in_trace(function(a)
      local kept
      core.trace_region(function(p) kept = p * 2; return p end, {a})
      return pcall(function() return kept + 1 end)
    end)
    assert.falsy(ok)
    assert.matches("E_TRACED.*was made in; return it from there instead", message)
  end)

  it("refuses writes to Params from inside, but to those made there", function()
    local p = ml.nn.Param(ml.tensor({1.0, 2.0}))
    local step = ml.jit(function(box, a)
      core.trace_region(function(q)
        local mine = ml.nn.Param(q)
        mine:set(q * 2)
        return mine:get() + box
      end, {a})
      core.trace_region(function(q) box:set(q); return q end, {a})
    end)
    assert.error_matches(function() step(p, x) end,
      "a Param is written in the body of a loop or branch.*make the value a carry")
    assert.same({1, 2}, p:get():totable())
  end)
end)
