-- bench.lua BIN FILTER: how fast this GPU trains, beside JAX and PyTorch where python3 has them. What
-- script/test-gpu bench runs; BIN has the program.
package.path = "tests/?.lua;" .. package.path
local rows = require "gpu.rows"

local SECONDS = 510 -- for all

local bin, filter = arg[1], arg[2]
local program = bin .. "/meshlua --devices=cuda"
local BATCHES = {64, 32, 16} -- those first that a GPU of this size is the fastest with: time may end
local PARAMETERS = 124475904 -- of GPT-2

--- The fields of a line "first=1.2 ms=3.4 ...".
local function fields(text)
  local list = {}
  for key, value in text:gmatch "([%l_]+)=([%d.]+)" do list[key] = tonumber(value) end
  return list
end

-- ---- single kernels, in one process of each ---------------------------------------------------------------
local single = {meshlua = {}, torch = {}, cublaslt = {}}

local function read_kernels(who, text)
  for name, rate, unit in text:gmatch "([^\n]-) ms=[%d.]+ rate=([%d.]+) unit=([^\n]+)" do
    single[who][name] = {rate = tonumber(rate), unit = unit}
    single[who][#single[who] + 1] = name
  end
end

--- The sizes of the products that were measured, one after the other.
local function product_sizes()
  local list = {}
  for _, name in ipairs(single.meshlua) do list[#list + 1] = name:match "^matmul ([%dx]+)$" end
  return (table.concat(list, " "):gsub("x", " "))
end

--- A kernel's rate beside others: of a copy where memory bounds it, of cublasLt's fastest algorithm for a
--- product, of PyTorch.
local function beside(name)
  local own, peer, fastest = single.meshlua[name], single.torch[name], single.cublaslt[name]
  local copy = single.torch.copy or single.meshlua.copy
  local words = {("%.1f %s"):format(own.rate, own.unit)}
  if own.unit == "GB/s" and copy then
    words[#words + 1] = ("%.0f %% of a copy"):format(100 * own.rate / copy.rate)
  end
  if fastest then
    words[#words + 1] = ("%.0f %% of cublasLt's best"):format(100 * own.rate / fastest.rate)
  end
  if peer then words[#words + 1] = ("%.2f of PyTorch's %.1f"):format(own.rate / peer.rate, peer.rate) end
  return table.concat(words, ", ")
end

-- ---- GPT-2 124M ---------------------------------------------------------------------------------------------
local best = {}

local function train(who, command)
  return {name = "GPT-2 124M, " .. who, limit = 170, run = function(sh)
    local words, reason = {}, nil
    for _, batch in ipairs(BATCHES) do
      local text, code = sh(("STARTED=$(date +%%s.%%N) %s %d 20"):format(command, batch))
      local row = code == 0 and fields(text) or {}
      row.batch = batch
      if not row.tokens then
        reason = text:match "([^\n]+)\n*$" or "no end in time"
      elseif not best[who] or row.tokens > best[who].tokens then
        best[who] = row
      end
      words[#words + 1] = ("%d: %s"):format(batch, row.tokens and ("%.0f"):format(row.tokens) or "none")
    end
    if not best[who] then return "not run: " .. tostring(reason) end
    local b = best[who]
    return ("%.0f tokens/s at batch %d (%.2f ms, peak %.1f GB, first step %.2f s, host %.0f us); by batch %s")
      :format(b.tokens, b.batch, b.ms, b.peak / 1e9, b.first, b.host, table.concat(words, ", "))
  end}
end

local function first_step(name, variables)
  return {name = "first step, " .. name, limit = 60, run = function(_, must)
    local text = must(("%s STARTED=$(date +%%s.%%N) %s bench/gpu/gpt2.lua 16 1"):format(variables, program))
    return ("%.2f s after the start of the process"):format(fields(text).first)
  end}
end

local function ratio(field, who, label)
  local own, peer = best.meshlua, best[who]
  if not (own and peer and peer[field] > 0) then return nil end
  return ("%s %.2f of %s"):format(label, own[field] / peer[field], who)
end

local list = {
  {name = "GPU", limit = 20, run = function(_, must)
    return must(bin .. "/meshlua doctor"):match "GPU %d+ +([^\n]*)"
  end},
  {name = "kernels", limit = 100, run = function(_, must)
    read_kernels("meshlua", must(program .. " bench/gpu/kernels.lua"))
    return #single.meshlua .. " measured"
  end},
  {name = "kernels, PyTorch", limit = 60, run = function(sh)
    local text, code = sh "python3 bench/gpu/kernels_torch.py"
    if code ~= 0 then return "not run: " .. tostring(text:match "([^\n]+)\n*$") end
    read_kernels("torch", text)
    return #single.torch .. " measured"
  end},
  {name = "kernels, cublasLt", limit = 40, run = function(_, must)
    read_kernels("cublaslt", must(bin .. "/cuda_bench_cublaslt " .. product_sizes()))
    return #single.cublaslt .. " measured"
  end},
  {name = "each kernel", limit = 10, run = function()
    local lines = {}
    for _, name in ipairs(single.meshlua) do lines[#lines + 1] = ("  %-44s %s"):format(name, beside(name)) end
    print(table.concat(lines, "\n"))
    return "above"
  end},
  first_step("nothing cached", "MESHLUA_CACHE=$(mktemp -d)"),
  first_step("kernels cached", ""),
  train("meshlua", program .. " bench/gpu/gpt2.lua"),
  train("torch", "python3 bench/gpu/gpt2_torch.py"),
  train("jax", "XLA_PYTHON_CLIENT_PREALLOCATE=false python3 bench/gpu/gpt2_jax.py"),
  {name = "beside each other", limit = 10, run = function()
    if not best.meshlua then return "not run: there is nothing to compare" end
    local mfu = require "meshlua.train.mfu"
    local words, own = {}, best.meshlua
    if own.peak_flops > 0 then
      words[1] = mfu.text {parameters = PARAMETERS, attention = {layers = 12, width = 768, seq = 1024},
        tokens_per_s = own.tokens, peak = own.peak_flops, gpus = 1}
    end
    for _, who in ipairs {"jax", "torch"} do
      words[#words + 1] = ratio("tokens", who, "tokens/s")
      words[#words + 1] = ratio("peak", who, "memory")
    end
    return table.concat(words, "; ")
  end},
}

rows.need_gpu(bin .. "/meshlua")
rows.run(list, filter, SECONDS)
