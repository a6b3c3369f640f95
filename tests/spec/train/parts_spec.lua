-- parts_spec.lua: what the training program is made of: options, JSON, count tables.
local json = require "meshlua.train.json"
local ngram = require "meshlua.train.ngram"
local options = require "meshlua.train.options"

describe("options", function()
  local rows = {{"steps", 10, "of work", least = 1}, {"lr", 1.0}, {"name", "", "a name"}, {"deep_sea", false},
    {"calm", true}}

  it("have their defaults' types", function()
    assert.same({steps = 10, lr = 1.0, name = "", deep_sea = false, calm = true}, options.parse({}, rows))
    local values = options.parse({"--steps=1e3", "--lr=3", "--name=a=b", "--deep-sea", "--calm=false"}, rows)
    assert.same({steps = 1000, lr = 3.0, name = "a=b", deep_sea = true, calm = false}, values)
    assert.same({"integer", "float"}, {math.type(values.steps), math.type(values.lr)})
    assert.equal(3, options.parse({"--steps=2", "--steps=3"}, rows).steps)
    assert.equal("", options.parse({"--name="}, rows).name)
  end)

  it("say what is wrong with them", function()
    local function message(word) return select(2, options.parse({word}, rows)) end
    assert.equal("unknown option --stepps; did you mean --steps?", message "--stepps")
    assert.equal("unknown option --zzzzzz", message "--zzzzzz")
    assert.equal("--steps=: expected a whole number", message "--steps=")
    assert.equal("--steps=0: the least is 1", message "--steps=0")
    assert.equal("--lr=nan: expected a number", message "--lr=nan")
    assert.equal("--calm=yes: expected true or false", message "--calm=yes")
    assert.equal("--name needs a value: --name=...", message "--name")
    assert.equal("'steps=5': options are written --key=value", message "steps=5")
  end)

  it("list themselves", function()
    assert.equal("  --steps=10   of work\n  --lr=1.0\n  --name=...   a name\n  --deep_sea\n"
      .. "  --calm=true", options.help(rows))
  end)
end)

describe("json", function()
  it("writes what JSON has words for", function()
    assert.equal('{"a":[1,2.5,true,"x"],"b":{"c":{}}}', json.encode {a = {1, 2.5, true, "x"}, b = {c = {}}})
    assert.equal('{"b":1,"a":2}', json.encode({a = 2, b = 1, c = 3}, {"b", "a", "none"}))
    assert.equal('{"x":null,"y":null,"z":-1e+30}', json.encode {x = 0 / 0, y = math.huge, z = -1e30})
    assert.equal('"tab\\t \\"quote\\" \\\\ \\u0001 \u{e9}"', json.encode 'tab\t "quote" \\ \1 \u{e9}')
    assert.equal('"\u{e9}t\u{e9}"', json.encode "\xe9t\xe9") -- Latin-1
  end)

  it("keeps a float32 and an integer", function()
    for _, x in ipairs {0.1, 1 / 3, 16777217.0, 1.17549435e-38, 3.4028234e38} do
      local single = string.unpack("<f", string.pack("<f", x))
      assert.equal(single, string.unpack("<f", string.pack("<f", tonumber(json.encode(single)))))
    end
    assert.equal(tostring(math.maxinteger), json.encode(math.maxinteger))
  end)
end)

describe("count tables", function()
  --- The definition, byte by byte, for one strength at each order.
  local function by_hand(text, known, first, last, strengths)
    local function occurrences(pattern, to)
      local n = 0
      for at = 1, to - #pattern + 1 do
        if text:sub(at, at + #pattern - 1) == pattern then n = n + 1 end
      end
      return n
    end
    local sums = {}
    for at = first, last do
      local p = 1 / 256
      for order = 0, #strengths - 1 do
        local s, context = strengths[order + 1], text:sub(at - order, at - 1)
        local before = occurrences(context, known - 1) -- those that a byte follows
        p = (occurrences(context .. text:sub(at, at), known) + s * p) / (before + s)
        sums[order] = (sums[order] or 0) - math.log(p)
      end
    end
    for order = 0, #sums do sums[order] = sums[order] / (last - first + 1) end
    return sums
  end

  local sentence = "the cat sat on the mat and the rat ate the oat. "

  it("are what their definition says", function()
    local text = sentence:rep(3):sub(1, 130)
    local known, first, last = 100, 102, 130
    local nats = ngram.cross_entropies(text, known, first, last, 2)
    -- The strengths are chosen from powers of two: one of them must give these numbers at each order.
    local powers, found = {1, 2, 4, 8, 16, 32, 64, 128, 256}, nil
    for _, a in ipairs(powers) do
      for _, b in ipairs(powers) do
        local hand = by_hand(text, known, first, last, {a, b})
        if math.abs(hand[1] - nats[1]) < 1e-12 then found = {a, b} end
      end
    end
    assert.truthy(found)
    assert.equal(2, #nats)
  end)

  it("learn what repeats, and longer contexts learn more of it", function()
    local text = sentence:rep(50)
    local nats = ngram.cross_entropies(text, 2000, 2002, #text, 4)
    assert.equal(4, #nats)
    for order = 2, 4 do assert.truthy(nats[order] < nats[order - 1]) end
    assert.truthy(nats[4] < 0.2)
  end)

  it("know nothing of noise", function()
    local bytes, state = {}, 1
    for i = 1, 20000 do
      state = state * 6364136223846793005 + 1442695040888963407
      bytes[i] = string.char(state >> 56)
    end
    local text = table.concat(bytes)
    for _, nats in ipairs(ngram.cross_entropies(text, 16000, 16002, #text, 4)) do
      assert.near(math.log(256), nats, 0.1)
    end
  end)

  it("never see what they predict", function()
    local a, b = sentence:rep(20), sentence:rep(20)
    local same = ngram.cross_entropies(a .. ("q"):rep(50), 900, 911, 1010, 3)
    local other = ngram.cross_entropies(b .. ("z"):rep(50), 900, 911, 1010, 3)
    for order = 1, 3 do assert.near(same[order], other[order], 1e-12) end
  end)
end)
