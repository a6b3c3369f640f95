-- expected.lua: what a GPT's train step must send under each rule set, from the config alone: the traffic
-- that the parallelism costs by its definition, and nothing else.
--
-- Each entry is {op, axes, count, bytes}: bytes of one device's operands, all such collectives together;
-- count {least, most} where a scalar may go with another, nil where joining is free to choose how many. A
-- product sums what it contracts over a split dim, so it ends in partial sums:
--   dp    each gradient, once over data. The loss, a scalar.
--   tp    Megatron's f and g (Shoeybi et al. 2019): per block the attention's output and the MLP's, forward,
--         and the gradients of their inputs, backward: 4 all_reduces of [B/data, T, C] over model. The
--         gradient norm sums squares of split gradients: a scalar over model.
--   fsdp  each matrix is gathered before each use and its gradient scattered (ZeRO-3, Rajbhandari et al.
--         2020). A use is a product with it, forward or backward; the token table is looked up, is the
--         head, and is used again for the head's gradient; positions are looked up. A block that is computed
--         again shares its gathers with its gradient: remat sends nothing more. What is below the
--         recipe's threshold is as under dp. The loss and the norm are scalars; the norm may go with the leaves.
--   tp_sp each of tp's four sums becomes a reduce_scatter, and the gather before the next product (Korthikanti
--         et al. 2022): the same bytes. What is whole has gradients of the tokens at hand: summed over both axes.
--   fsdp_tp, and fsdp with data and model as three axes: the two together.
local M = {}

local FLOAT = 4

--- The parameters of a GPT: {shape, uses, role}. role: what tp does, "column" (split by columns: also its
--- bias), "row" (by rows), or nil (whole).
---@param cfg table layers, width, seq, vocab
function M.parameters(cfg)
  local C, list = cfg.width, {}
  local function add(shape, uses, role) list[#list + 1] = {shape = shape, uses = uses, role = role} end
  local function norm()
    add {C}
    add {C}
  end
  add({cfg.vocab, C}, 3)
  add({cfg.seq, C}, 1)
  for _ = 1, cfg.layers do
    norm()
    for _ = 1, 3 do -- query, key, value
      add({C, C}, 2, "column")
      add({C}, nil, "column")
    end
    add({C, C}, 2, "row")
    add {C}
    norm()
    add({C, 4 * C}, 2, "column")
    add({4 * C}, nil, "column")
    add({4 * C, C}, 2, "row")
    add {C}
  end
  norm()
  return list
end

function M.elements(p)
  local n = 1
  for _, d in ipairs(p.shape) do n = n * d end
  return n
end

--- Bytes of a list of parameters; `split` of each: by how much one device's part is smaller.
local function bytes(list, split)
  local sum = 0
  for _, p in ipairs(list) do sum = sum + M.elements(p) * FLOAT // (split and split(p) or 1) end
  return sum
end

function M.dp(cfg)
  return {
    {"all_reduce", "data", nil, bytes(M.parameters(cfg)) + FLOAT},
  }
end

---@param data integer size of the axis
---@param model integer
function M.tp(cfg, data, model)
  local activations = cfg.batch // data * cfg.seq * cfg.width * FLOAT
  local gradients = bytes(M.parameters(cfg), function(p) return p.role and model or 1 end)
  return {
    {"all_reduce", "model", {4 * cfg.layers, 4 * cfg.layers + 1}, 4 * cfg.layers * activations + FLOAT},
    {"all_reduce", "data", nil, gradients + FLOAT},
  }
end

--- With the vocabulary split, too: a sum for the looked-up tokens and one for the gradient of the head's
--- input; of the logits, which stay where they are, each token's maximum, and the sums of their exponentials
--- and of what is the label's, which may go together.
---@param data integer size of the axis
---@param model integer
function M.tp_vocab(cfg, data, model)
  local tokens = cfg.batch // data * cfg.seq * FLOAT
  local sums, table_bytes = 4 * cfg.layers + 2, cfg.vocab * cfg.width * FLOAT
  local gradients = bytes(M.parameters(cfg), function(p) return p.role and model or 1 end)
  return {
    {"all_reduce", "model", {sums + 2, sums + 4}, sums * cfg.width * tokens + 3 * tokens + FLOAT},
    {"all_reduce", "data", nil, gradients - table_bytes + table_bytes // model + FLOAT},
  }
end

--- What splitting matrices over an axis of size `fsdp` sends over it, beside `model`: gathers and scatters of
--- those of at least `threshold` elements, a {count, bytes} each; and the bytes of the gradients of the rest.
local function fully_sharded(cfg, fsdp, model, threshold)
  local gathers, scatters, small = {0, 0}, {0, 0}, 0
  for _, p in ipairs(M.parameters(cfg)) do
    local n = M.elements(p) * FLOAT // (p.role and model or 1)
    if M.elements(p) < threshold then
      small = small + n
    else
      gathers = {gathers[1] + p.uses, gathers[2] + p.uses * n // fsdp}
      scatters = {scatters[1] + 1, scatters[2] + n}
    end
  end
  return gathers, scatters, small
end

---@param data integer size of the axis
---@param threshold integer elements
function M.fsdp(cfg, data, threshold)
  local gathers, scatters, small = fully_sharded(cfg, data, 1, threshold)
  return {
    {"all_gather", "data", table.unpack(gathers)},
    {"reduce_scatter", "data", table.unpack(scatters)},
    {"all_reduce", "data", nil, small + 2 * FLOAT}, -- the loss, and a bucket with the norm in it
  }
end

---@param data integer size of the axis
---@param model integer
function M.tp_sp(cfg, data, model)
  local activations = cfg.batch // data * cfg.seq * cfg.width * FLOAT
  local split, whole = 0, 0
  for _, p in ipairs(M.parameters(cfg)) do
    local n = M.elements(p) * FLOAT
    if p.role then split = split + n // model else whole = whole + n end
  end
  local positions = cfg.seq * cfg.width * FLOAT -- each device has the gradient of its tokens' positions
  return {
    {"all_gather", "model", 4 * cfg.layers + 1, 4 * cfg.layers * activations // model + positions // model},
    {"reduce_scatter", "model", 4 * cfg.layers, 4 * cfg.layers * activations},
    {"all_reduce", "data", nil, split + positions // model},
    {"all_reduce", "data,model", nil, whole - positions + FLOAT}, -- the loss
    {"all_reduce", "model", 1, FLOAT}, -- the norm
  }
end

--- Matrices split over `fsdp` beside `model`, the batch over `data` and `fsdp`; without `data` the axis that
--- is called fsdp here is called data.
---@param data integer? size of the axis
---@param fsdp integer
---@param model integer
---@param threshold integer elements
function M.fsdp_tp(cfg, data, fsdp, model, threshold)
  local activations = cfg.batch // ((data or 1) * fsdp) * cfg.seq * cfg.width * FLOAT
  local gathers, scatters, small = fully_sharded(cfg, fsdp, model, threshold)
  local axis, both = "fsdp", "data,fsdp"
  if not data then axis, both = "data", "data" end
  local list = {
    {"all_gather", axis, table.unpack(gathers)},
    {"reduce_scatter", axis, table.unpack(scatters)},
    {"all_reduce", "model", {4 * cfg.layers, 4 * cfg.layers + 1}, 4 * cfg.layers * activations + FLOAT},
    {"all_reduce", axis .. ",model", 1, FLOAT}, -- the norm of what is split over both
  }
  if data then
    list[5] = {"all_reduce", "data", nil, scatters[2] // fsdp}
    list[6] = {"all_reduce", "fsdp", 1, FLOAT}       -- the norm of what is split over fsdp alone
    list[7] = {"all_reduce", both, nil, small + FLOAT} -- the loss
  else
    list[5] = {"all_reduce", "data", nil, small + 2 * FLOAT}
  end
  return list
end

-- ---- the same at scale: vocabulary and block matrices split over `model`, what has `least` elements over `data`

--- How many parts the parameter has over the axes.
local function parts(cfg, p, model, data, least)
  local over_model = (p.role or p.shape[1] == cfg.vocab) and model or 1
  if p.role == "row" and #p.shape == 1 then over_model = 1 end
  return over_model * (M.elements(p) >= least and data or 1)
end

--- Bytes that one device sends under FSDP: each matrix gathered for its uses, its gradient scattered.
---@param least integer elements of a matrix that is split
---@param width integer bytes of an element
function M.fsdp_sent(cfg, model, data, least, width)
  local sum = 0
  for _, p in ipairs(M.parameters(cfg)) do
    if M.elements(p) >= least then
      local whole = M.elements(p) * width // parts(cfg, p, model, 1, 1)
      sum = sum + (p.uses + 1) * whole // data * (data - 1)
    end
  end
  return sum
end

--- Elements of all parameters that one device holds.
---@param model integer size of the axis
---@param data integer
---@param least integer elements
function M.held(cfg, model, data, least)
  local sum = 0
  for _, p in ipairs(M.parameters(cfg)) do
    sum = sum + M.elements(p) // parts(cfg, p, model, data, least)
  end
  return sum
end

--- Bytes of what one device keeps of a batch of one sequence from the forward pass to the backward one, in
--- 16 bits. Of each block, in units of seq * width elements: whole on every device, x and its norm, twice
--- (4); split, query, key, value and attention's result (4), and of the hidden layer, four times as wide, what goes
--- into gelu and what comes out (2 * 4). In float32 the norms' mean and deviation, and
--- attention's log-sum.
---@param model integer size of the axis
function M.activations(cfg, model)
  local unit = cfg.seq * cfg.width * 2
  local statistics = (4 + cfg.heads // model) * cfg.seq * FLOAT
  return cfg.layers * (4 * unit + 12 * unit // model + statistics)
end

-- ---- the block of seed 003 (tests/spec/seeds/block.lua) -----------------------------------------------

--- Its parameters: {shape, role}, role as in M.parameters.
local function block_parameters(cfg)
  local C, list = cfg.width, {}
  local function add(shape, role) list[#list + 1] = {shape = shape, role = role} end
  for _ = 1, 4 do add {C} end -- two norms
  for _ = 1, 3 do             -- query, key, value
    add({C, C}, "column")
    add({C}, "column")
  end
  add({C, C}, "row")
  add {C}
  add({C, cfg.hidden}, "column")
  add({cfg.hidden}, "column")
  add({cfg.hidden, C}, "row")
  add {C}
  return list
end

--- One step under Megatron's rules: f and g of the attention and of the MLP.
---@param cfg table batch, seq, width, hidden
---@param batch integer size of the axis
---@param model integer
function M.block_megatron(cfg, batch, model)
  local rows = cfg.batch // batch * cfg.seq
  local gradients = bytes(block_parameters(cfg), function(p) return p.role and model or 1 end)
  return {
    {"all_reduce", "model", 4, 4 * rows * cfg.width * FLOAT},
    {"all_reduce", "batch", nil, gradients + FLOAT},
  }
end

--- One step as the slides have it: dim 1 of every parameter over model. Each of the six products contracts over a
--- split dim, and its sums are scattered, as its bias lies. Backward each takes the cotangent of what it made
--- whole. The second norm's rows are split: mean and variance are sums of each row, and so are the two that its
--- gradient takes. The first norm's input is the batch, whole: its scale and bias are gathered, or one of its
--- sums is split as they are, which is less where rows are fewer than features. The mean is over split
--- features, too.
---@param cfg table batch, seq, width, hidden
---@param batch integer size of the axis
---@param model integer
function M.block_slides(cfg, batch, model)
  local rows = cfg.batch // batch * cfg.seq
  local width, hidden = rows * cfg.width * FLOAT, rows * cfg.hidden * FLOAT
  local gathers = rows < cfg.width and 0 or 2
  local sums = rows < cfg.width and 5 or 4
  return {
    {"reduce_scatter", "model", 6, 5 * width + hidden},
    {"all_gather", "model", 6 + gathers, (5 * width + hidden + gathers * cfg.width * FLOAT) // model},
    {"all_reduce", "model", sums, sums * rows * FLOAT},
    {"all_reduce", "batch", nil, bytes(block_parameters(cfg)) // model},
    {"all_reduce", "batch,model", 1, FLOAT}, -- the loss
  }
end

-- ---- a convolutional network (models/convnet.lua) -----------------------------------------------------

--- Its parameters: {shape, role}. tp splits every second kernel by its output features, with the norm behind
--- it ("out"), the next by its input features ("in").
---@param cfg table channels, blocks, width, classes
local function convnet_parameters(cfg)
  local list, norms, n, size = {}, {}, 1, 28
  for i = 1, cfg.blocks do
    local c, role = cfg.channels << (i - 1), i % 2 == 1 and "out" or "in"
    list[#list + 1] = {shape = {3, 3, n, c}, role = role}
    norms[#norms + 1] = {shape = {c}, role = role == "out" and role or nil}
    for _ = 1, 2 do list[#list + 1] = norms[#norms] end -- scale and bias
    n, size = c, size // 2
  end
  list[#list + 1] = {shape = {size * size * n, cfg.width}, role = cfg.blocks % 2 == 1 and "in" or nil}
  for _, shape in ipairs {{cfg.width}, {cfg.width, cfg.classes}, {cfg.classes}} do
    list[#list + 1] = {shape = shape}
  end
  return list, norms
end

--- Over data: each gradient and the loss, and of each norm the mean and the variance of the whole batch,
--- forward, and the cotangent of the mean, backward (that of the variance is made of the scale's gradient).
--- Over model (tp): the sums of each kernel that is split by its input features, [B/data, side, side, C],
--- forward; backward, the gradient of what an "out" kernel after the first reads; the hidden layer's sums
--- [B/data, width] where it reads split features; and the gradient norm.
---@param model integer size of the axis; 1: dp
function M.convnet(cfg, data, model)
  local list, norms = convnet_parameters(cfg)
  local function split(p) return p.role and model or 1 end
  local over_data = bytes(list, split) + FLOAT + 3 * bytes(norms, split)
  local out = {{"all_reduce", "data", nil, over_data}}
  if model == 1 then return out end
  local sums, count = 0, 0
  for i = 1, cfg.blocks do
    local side, features = 28 >> (i - 1), cfg.channels << (i - 1)
    local function activations(c) return cfg.batch // data * side * side * c * FLOAT end
    if i % 2 == 0 then sums, count = sums + activations(features), count + 1 end
    if i % 2 == 1 and i > 1 then sums, count = sums + activations(features // 2), count + 1 end
  end
  if cfg.blocks % 2 == 1 then sums, count = sums + cfg.batch // data * cfg.width * FLOAT, count + 1 end
  table.insert(out, 1, {"all_reduce", "model", {count, count + 1}, sums + FLOAT})
  return out
end

-- ---- a mixture of experts (nn.MoE) --------------------------------------------------------------------

--- Forward and backward of one layer whose batch lies over data and expert, and whose experts lie over expert.
--- What goes to the experts, [experts, B, capacity, width], is sent there and back, forward and backward: four
--- all_to_alls of a device's part. The experts' gradients are summed over data alone, the router's over all;
--- a split inside the experts costs Megatron's f and g over model.
---@param cfg table batch, width, hidden, experts, capacity
---@param sizes {data: integer?, expert: integer, model: integer?}
function M.moe(cfg, sizes)
  local data, expert, model = sizes.data or 1, sizes.expert, sizes.model or 1
  local sent = cfg.experts * cfg.batch * cfg.capacity * cfg.width * FLOAT // (data * expert)
  local router = cfg.width * cfg.experts * FLOAT
  local experts = 2 * cfg.experts * cfg.width * cfg.hidden * FLOAT // (expert * model)
  local out = {{"all_to_all", "expert", 4, 4 * sent},
    {"all_reduce", data > 1 and "data,expert" or "expert", nil, router + FLOAT}} -- and the loss
  if data > 1 then out[#out + 1] = {"all_reduce", "data", nil, experts} end
  if model > 1 then out[#out + 1] = {"all_reduce", "model", 2, 2 * sent} end
  return out
end

return M
