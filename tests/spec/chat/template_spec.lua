-- template_spec.lua: chat templates: what Jinja makes of them (tests/oracle/chat.py; CHAT_CASES=FILE: of more), what is
-- refused, and that none runs without end, whatever its text.
local helper = require "spec.helper"
local ml = require "meshlua"

local function render(source, variables)
  local template, message, code = ml.chat_template(source)
  if not template then return nil, message, code end
  return template:render(variables or {})
end

--- What a template says that cannot be read or run.
local function fault(source, variables)
  local text, message, code = render(source, variables)
  assert.equal(nil, text)
  return code .. " " .. message:gsub("^chat template, line ", "")
end

--- Cases of a file: how many differ, and the first of them.
local function compare(path)
  local n, differ, first = 0, 0, nil
  for line in io.lines(path) do
    local case = ml.core.json(line)
    local text, message = render(case.template, case.values)
    -- What Jinja refuses (a dict that is to be hashed) may come out; what it takes must.
    if text ~= case.text and case.text then
      differ = differ + 1
      first = first or ("%s\nJinja: %s\nhere: %s"):format(case.template, case.text, text or message)
    end
    n = n + 1
  end
  return n, differ, first
end

describe("a chat template", function()
  it("gives what Jinja gives", function()
    local n, differ, first = compare "tests/oracle/chat.json"
    assert.truthy(n > 30)
    assert.equal(nil, first)
    assert.equal(0, differ)
  end)

  it("gives it for cases that were made on request", function()
    local path = os.getenv "CHAT_CASES"
    if not path then helper.pending "CHAT_CASES names no file of cases (tests/oracle/chat.py)" end
    local n, differ, first = compare(path)
    print(("%d cases, %d differ"):format(n, differ))
    assert.equal(nil, first)
  end)

  it("takes Lua's tables as lists and dicts, and null as none", function()
    assert.equal("[1, 2]{'a': 'b', 'c': None}0", (render("{{ x }}{{ y }}{{ z | length }}",
      {x = {1, 2}, y = {c = ml.core.null, a = "b"}, z = {}})))
    assert.equal("chat", ml.chat_template("chat").source)
    local source = "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(1, **x) }}{{ f(*y) }}"
    assert.equal("1234", (render(source, {x = {b = 2}, y = {3, 4}})))
  end)

  it("names what it does not support, and where", function()
    assert.equal("E_UNSUPPORTED 2: {% include %} is not supported", fault "a\n{% include 'x' %}")
    assert.equal("E_UNSUPPORTED 1: the filter 'urlize' is not supported", fault "{{ x | urlize }}")
    assert.equal("E_UNSUPPORTED 1: the test 'escaped' is not supported", fault "{{ x is escaped }}")
    assert.equal("E_UNSUPPORTED 1: a call with several * is not supported", fault "{{ f(*x, *y) }}")
    assert.equal("E_UNSUPPORTED 3: a recursive loop is not supported",
      fault "\n\n{% for x in y recursive %}{% endfor %}")
  end)

  it("says what is wrong with its text", function()
    assert.equal("E_PARSE 1: {% endif %} is missing for what begins here", fault "{% if x %}a")
    assert.equal("E_PARSE 2: an expression is expected, not the end of the tag", fault "\n{{ 1 + }}")
    assert.equal("E_PARSE 1: a tag has no end: }} is missing", fault "{{ 1")
    assert.equal("E_PARSE 1: what it ends is expected, not 'endfor'", fault "{% endfor %}")
    assert.equal("E_PARSE 1: a text does not end", fault "{{ 'a }}")
    assert.equal("E_PARSE 1: it is not UTF-8", fault "\xff")
    assert.equal("E_PARSE 1: '$' means nothing here", fault "{{ $ }}")
    assert.equal("E_PARSE 1: ']' closes nothing", fault "{{ (1] }}")
    local deep = "{{ " .. ("("):rep(5000) .. "1" .. (")"):rep(5000) .. " }}"
    assert.truthy(fault(deep):find "more than 100 things within each other")
  end)

  it("says what is wrong while it runs", function()
    assert.equal("E_VALUE 2: it says: roles", fault "\n{{ raise_exception('roles') }}")
    assert.equal("E_VALUE 1: 'm' is undefined, and so has no role", fault "{{ m.role }}")
    assert.equal("E_VALUE 1: a text + a number cannot be computed", fault "{{ 'a' + 1 }}")
    assert.equal("E_VALUE 1: a text among the values is not UTF-8", fault("{{ x }}", {x = "\xff"}))
    helper.raises("E_VALUE", ml.chat_template("x").render, ml.chat_template "x", 5)
  end)

  it("ends, and does not grow without end", function()
    local loop = "{% for i in range(99999) %}"
    assert.truthy(fault(loop .. loop .. "{% endfor %}{% endfor %}"):find "does not end")
    assert.truthy(fault "{{ 'a' * 99999999999 }}":find "makes too much")
    assert.truthy(fault "{{ [1] * 99999999999 }}":find "makes too much")
    assert.truthy(fault "{{ range(100001) }}":find "the most is 100000")
    assert.truthy(fault("{% set ns = namespace(s='aaaaaaaa') %}" .. loop
      .. "{% set ns.s = ns.s + ns.s %}{% endfor %}"):find "makes too much")
    assert.truthy(fault "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":find "more than 100 deep")
    assert.truthy(fault "{{ 9223372036854775807 + 1 }}":find "too large")
  end)

  -- FUZZ=N: so many.
  helper.figures("that was made wrong is a text or a fault, never another error", function()
    local sources = {}
    local signs = {"{{", "}}", "{%", "%}", "-", "|", "(", ")", "[", "]", "'", "endfor", " if ", "."}
    for line in io.lines "tests/oracle/chat.json" do sources[#sources + 1] = ml.core.json(line) end
    local state = 1
    local function draw(n)
      state = (state * 6364136223846793005 + 1442695040888963407) & math.maxinteger
      return (state >> 20) % n + 1
    end
    for _ = 1, tonumber(os.getenv "FUZZ") or 600 do
      local case = sources[draw(#sources)]
      local text = case.template
      for _ = 1, draw(3) do
        local at, kind = draw(math.max(1, #text)), draw(4)
        local piece = kind == 1 and signs[draw(#signs)] or kind == 2 and string.char(draw(256) - 1)
          or kind == 3 and "" or text:sub(at, at + draw(9))
        text = text:sub(1, at - 1) .. piece .. text:sub(at + draw(4))
      end
      local given, message, code = render(text, case.values)
      assert.truthy(given or message:find "^chat template, line %d+: " and code:find "^E_", text)
    end
  end)
end)
