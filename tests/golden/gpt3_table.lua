-- gpt3_table.lua: prints what a device holds and sends in a step of GPT-3 175B, by layout:
--   build/meshlua --devices=fake:h200:4096 tests/golden/gpt3_table.lua
package.path = "tests/?.lua;./?.lua;" .. package.path
local gpt3 = require "golden.gpt3"
local ml = require "meshlua"

local P, bf16 = ml.P, {dtype = "bfloat16"}
local by_size = ml.shard_largest("data", gpt3.LEAST)

--- The usual first draft: the token table split by rows, every matrix by columns, the rest whole.
local function by_columns(path)
  if path:find "wte" then return P("model", nil) end
  if path:find "out.kernel" then return P(nil, nil, "model") end -- [heads, features of one, width]
  return path:find "kernel" and P(nil, "model") or P()
end

local layouts = {
  {"8x8, fully sharded", 8, gpt3.config(bf16), gpt3.rules(by_size), true},
  {"512x8, fully sharded", 512, gpt3.config(bf16), gpt3.rules(by_size), true},
  {"8x8, ZeRO-1", 8, gpt3.config(bf16), gpt3.rules {opt = by_size}, true},
  {"512x8, ZeRO-1", 512, gpt3.config(bf16), gpt3.rules {opt = by_size}, true},
  {"8x8, model only", 8, gpt3.config {precision = "bf16"}, gpt3.rules(), false},
  {"8x8, by columns", 8, gpt3.config {precision = "bf16"}, gpt3.rules(by_columns), false},
}

local function GB(bytes) return ("%.1f"):format(bytes / 1e9) end

for _, layout in ipairs(layouts) do
  local name, data, cfg, rules, master = table.unpack(layout)
  local plan, seconds = gpt3.plan_of(data, cfg, rules, master)
  local memory, own = plan:memory(), gpt3.held(plan)
  print(("%s: planned in %.2f s; %s"):format(name, seconds,
    plan:fits() and "fits" or "refused: " .. select(2, plan:fits())))
  print(("  GB: arguments %s, temporaries %s, peak %s; master or only weights %s, gradients %s, moments %s, "
    .. "bfloat16 copies %s"):format(GB(memory.arguments), GB(memory.temporaries), GB(memory.peak),
    GB(own.updated), GB(own.gradients), GB(own.moments), GB(own.copies)))
  local sums, keys = {}, {}
  for _, c in ipairs(plan:collectives()) do
    local key = c.op .. " over " .. table.concat(c.axes, ",")
    if not sums[key] then
      sums[key] = {0, 0, 0}
      keys[#keys + 1] = key
    end
    local sum = sums[key]
    sum[1], sum[2], sum[3] = sum[1] + 1, sum[2] + c.bytes, sum[3] + c.sent
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local sum = sums[key]
    print(("  %s: %d, operands %s GB, sent %s GB"):format(key, sum[1], GB(sum[2]), GB(sum[3])))
  end
end
