-- What script/mutate does to C, and what it leaves alone.
package.path = "tests/mutate/?.lua;" .. package.path
local mutations = require "mutations"

-- What becomes of the statements of a function, by kind: {kind, changed text} in order.
local function of(body, head)
  local before = (head or "int f(int a, int b)") .. " { "
  local text = before .. body .. " }\n"
  local list = {}
  for _, m in ipairs(mutations.of(text)) do
    local changed = mutations.apply(text, m)
    assert.equal(before, changed:sub(1, #before))
    list[#list + 1] = m.kind .. ": " .. changed:sub(#before + 1, -4)
  end
  table.sort(list)
  return list
end

describe("a mutation", function()
  it("negates and fixes conditions", function()
    assert.same({"condition: if (!(a)) g();", "condition: if (0) g();", "condition: if (1) g();",
      "dropped: if (a) ;"}, of "if (a) g();")
    assert.same({"condition: a = !(b) ? x : y;", "dropped: ;"}, of "a = b ? x : y;")
    assert.same({"condition: while (0) g();", "dropped: while (a) ;"}, of "while (a) g();")
  end)

  it("weakens, by an operand that no longer matters", function()
    local list = of "return a && g(a, b) && c;"
    for _, wanted in ipairs {"return 1 && g(a, b) && c;", "return a && 1 && c;",
      "return a && g(a, b) && 1;"} do
      assert.truthy(table.concat(list, "\n"):find("weakened: " .. wanted, 1, true), wanted)
    end
    assert.truthy(table.concat(of "x = a || b && c;", "\n"):find("weakened: x = a || 0;", 1, true))
  end)

  it("exchanges relations, arithmetic and logic", function()
    assert.same({"dropped: ;", "relation: a = b <= c;", "relation: a = b >= c;"}, of "a = b < c;")
    assert.same({"arithmetic: a = b - c;", "dropped: ;"}, of "a = b + c;")
    assert.same({"arithmetic: *a -= b;", "dropped: ;"}, of "*a += b;")
    assert.same({"arithmetic: int c = a + *p;"}, of "int c = a * *p;")
  end)

  it("moves constants by one, and never a length that is declared", function()
    assert.same({"constant: int c = 3;", "constant: int c = 5;"}, of "int c = 4;")
    assert.same({"constant: float c = (0.5f + 1);"}, of "float c = 0.5f;")
    assert.same({"constant: bool c = false;"}, of "bool c = true;")
    assert.same({}, of "char text[64];")
    assert.same({"constant: int c = a[1];"}, of "int c = a[0];")
  end)

  it("drops calls, assignments and steps, and no declaration", function()
    assert.same({"dropped: ;"}, of "g(a)->b = c;")
    assert.same({"dropped: ;"}, of "a[b]++;")
    assert.same({"dropped: for (;;) ;"}, of "for (;;) break;")
    assert.same({}, of "Thing *a;")
    assert.same({}, of "Thing a = b;")
  end)

  it("replaces results", function()
    assert.same({"result: return 0;"}, of "return g(a);")
    assert.same({"result: return !(g(a));"}, of("return g(a);", "static bool f(int a)"))
    assert.same({}, of "return E_OK;")
  end)

  it("leaves errors' words, checks, comments and the preprocessor alone", function()
    assert.same({"result: return 0;"}, of 'return err_set(cx, E_SHAPE, "%d < %d", a + 1, b);')
    assert.same({}, of 'ASSERT(a < 1, "more");')
    assert.same({}, of "/* a < 1 */ log_note(cx, a + 1); // b && c")
    assert.same({}, mutations.of "#define F(x) \\\n    ((x) + 1)\n")
  end)

  it("stays within functions", function()
    assert.same({}, mutations.of "enum { FAR = 16 };\nstatic const int LIMIT[] = {1, 2};\nint g(int a);\n")
    local found = mutations.of("int a[] = {1 + 2};\n\nint g(int a)\n{\n    /* one\n     * two */\n"
      .. "    return a + b;\n}\n")
    assert.equal(7, found[1].line)
  end)
end)
