-- devices: fake:h200:4096
-- A step of GPT-3 175B (Brown et al. 2020) on meshes of H200s, planned here: what each device holds and sends,
-- against the formulas in tests/golden/expected.lua, and those against the numbers of the usual hand table.
local expected = require "golden.expected"
local gpt3 = require "golden.gpt3"
local helper = require "spec.helper"
local ml = require "meshlua"

local config, rules, plan_of, held, sent = gpt3.config, gpt3.rules, gpt3.plan_of, gpt3.held, gpt3.sent
local SECONDS = helper.watched and 30 or 2 -- to plan in; a sanitizer is slower
local T, LEAST = gpt3.T, gpt3.LEAST
local N = 174.6e9 -- parameters, in the hand table
local function check_near(hand, bytes, share) assert.near(hand, bytes, share * hand) end

describe("GPT-3 175B", function()
  local bf16 = {dtype = "bfloat16"}

  it("has the hand table's parameters", function()
    local n = 0
    for _, p in ipairs(expected.parameters(config {})) do n = n + expected.elements(p) end
    check_near(N, n, 5e-4)
  end)

  it("fully sharded on 8x8: 16 bytes of a parameter, 43.7 GB", function()
    local plan, seconds = plan_of(8, config(bf16), rules(ml.shard_largest("data", LEAST)), true)
    assert.is_true(seconds < SECONDS, "planned in " .. seconds .. " s")
    local own, sum = held(plan), expected.held(config(bf16), T, 8, LEAST)
    assert.equal(4 * sum, own.updated)     -- master weights
    assert.equal(2 * sum, own.gradients)   -- bfloat16
    assert.equal(8 * sum, own.moments)
    assert.equal(2 * sum, own.copies)      -- the weights themselves
    check_near(43.7e9, 16 * sum, 5e-3) -- small leaves are on every device
    assert.is_true(plan:fits())
    check_near(plan:memory().temporaries, expected.activations(config(bf16), T), 0.1)
    -- FSDP: each matrix gathered for each use, its gradient scattered: 3 (d - 1) / d of the weights; the hand
    -- table has 114.6 GB, and does not count that the token table is used three times.
    local cfg = config(bf16)
    local _, _, gathered = sent(plan, "all_gather", "data", "bfloat16")
    local _, _, scattered = sent(plan, "reduce_scatter", "data", "bfloat16")
    assert.equal(expected.fsdp_sent(cfg, T, 8, LEAST, 2), gathered + scattered)
    check_near(114.6e9, gathered + scattered - cfg.vocab * cfg.width * 2 / T * 7 / 8, 2e-3)
  end)

  it("split 8 ways, optimizer state 64 ways (ZeRO-1): 120.0 GB with whole gradients", function()
    if helper.watched then helper.pending "a sanitizer takes long for a third such plan" end
    for _, data in ipairs {8, 512} do
      local plan, seconds = plan_of(data, config(bf16), rules {opt = ml.shard_largest("data", LEAST)}, true)
      assert.is_true(seconds < SECONDS, "planned in " .. seconds .. " s")
      local own, cfg = held(plan), config(bf16)
      local whole = expected.held(cfg, T, 1, 1)
      local part = expected.held(cfg, T, data, LEAST)
      assert.equal(4 * part, own.updated)
      assert.equal(8 * part, own.moments)
      -- Gradients are scattered as soon as they are made (ZeRO-2): a device never holds all of them.
      assert.equal(2 * part, own.gradients)
      assert.equal(2 * whole + 12 * part + 4 + 4 * cfg.seq, math.tointeger(plan:memory().arguments))
      check_near(plan:memory().temporaries, expected.activations(cfg, T), 0.1)
      -- Megatron's four sums of [seq, width] in a block, and two for the split vocabulary.
      local n, given, over = sent(plan, "all_reduce", "model", "bfloat16")
      assert.equal(4 * cfg.layers + 2, n)
      assert.equal(n * cfg.seq * cfg.width * 2, math.tointeger(given))
      assert.equal(2 * (T - 1) / T * given, over)
      -- Logits stay split: of each token a maximum and two sums in float32, once forward.
      assert.equal(0, (sent(plan, "all_gather", "model", "bfloat16")))
      local _, rows = sent(plan, "all_reduce", "model", "float32")
      assert.equal(3 * 4 * cfg.seq + 4, math.tointeger(rows)) -- and the norm
      check_near(33.8e9, over * 4 * cfg.layers // n, 2e-3)
      if data == 8 then check_near(120.0e9, 4 * whole + 12 * part, 5e-3) end
      assert.is_true(plan:fits())
    end
  end)

  it("on data x stage x model, 1f1b: 14 bytes of a stage's parameters, and of the tables'", function()
    for _, case in ipairs {{8, 8, 64, 47.2e9}, {32, 16, 64, 28.2e9}} do
      local data, p, m = table.unpack(case)
      local plan, seconds, figures = gpt3.pipelined(data, p, m)
      local cfg = config(bf16)
      assert.is_true(seconds < SECONDS, "planned in " .. seconds .. " s")
      local tables = (cfg.vocab + cfg.seq) * cfg.width -- whole on each place
      local hand = 14 * ((N - tables) / (p * T) + tables) -- bfloat16, float32 and the moments
      check_near(case[4], hand, 2e-3)
      check_near(hand, plan:memory().arguments, 2e-3)
      assert.is_true(plan:fits())
      local hops, bytes = 0, 2 * cfg.seq * cfg.width
      for _, c in ipairs(plan:collectives()) do
        if c.op == "ppermute" then
          hops = hops + c.times
          assert.equal(bytes, c.bytes)
        end
      end
      assert.equal(2 * (m + p - 1), hops)
      assert.equal(hops, figures.hops)
      assert.equal(data * bytes, figures.hop_bytes) -- of all data groups
      assert.near((p - 1) / (m + p - 1), figures.idle, 1e-12)
      assert.equal(2 * p - 1, figures.ring)
    end
  end)

  it("split 8 ways only: 18 bytes of a parameter, 392.9 GB: refused at 141 GB", function()
    local cfg = config {precision = "bf16"}
    local plan, seconds = plan_of(8, cfg, rules(), false)
    assert.is_true(seconds < SECONDS, "planned in " .. seconds .. " s")
    local own, whole = held(plan), expected.held(cfg, T, 1, 1)
    assert.equal(4 * whole, own.updated)
    assert.equal(4 * whole, own.gradients)
    assert.equal(8 * whole, own.moments)
    assert.equal(2 * whole, own.copies)    -- for bfloat16 products
    check_near(392.9e9, 18 * whole, 2e-3)
    local ok, message, code = plan:fits()
    assert.is_nil(ok)
    assert.equal("E_NOMEM", code)
    assert.truthy(message:match("^the plan needs 37%d%.%d GB on each device, and h200 has 141%.0 GB: split "
      .. "what it holds over more devices %(weights, optimizer state%), or take a smaller batch$"), message)
  end)
end)
