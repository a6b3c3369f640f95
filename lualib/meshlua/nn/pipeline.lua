-- pipeline.lua: layers as stages on the places along a mesh axis, and microbatches through them. What is here is the
-- call: its options, what the user's functions read and give, the gradient. The loops are in pipeline_ticks.lua, the
-- stages in pipeline_stages.lua, the figures in pipeline_figures.lua.
--
-- Loss and gradients are sums over microbatches in the order of ml.accumulate, whatever the schedule and the number
-- of places, so that they are the same bits. Where the loss is inside, its gradients are made with it (a rule as
-- ml.custom_vjp's), and the way back scales them.
local core = require "meshlua.core"
local effects = require "meshlua.transform.effects"
local figures = require "meshlua.nn.pipeline_figures"
local lib = require "meshlua.lib"
local microbatch = require "meshlua.transform.microbatch"
local random = require "meshlua.random"
local rngs_of = require "meshlua.nn.rngs"
local shard_map = require "meshlua.sharding.shard_map"
local stages_of = require "meshlua.nn.pipeline_stages"
local ticks = require "meshlua.nn.pipeline_ticks"
local trace = require "meshlua.transform.trace"
local traced = require "meshlua.transform.traced"

local P, raise = core.P, lib.raise

local M = {}

local WHO <const> = "nn.pipeline"
local AXIS <const> = "stage" -- where the option says nothing

-- ---- options --------------------------------------------------------------------------------------------

--- The mesh, and how many places its axis has: one where there is no mesh, or no axis and none was named.
local function places_of(who, options)
  local mesh = options.mesh or core.mesh_current() or core.is_tracing() and core.mesh_traced() or nil
  local p = mesh and mesh.shape[options.stage or AXIS]
  if mesh and not p and options.stage then
    raise("E_SPEC", "%s: stage = '%s' is not an axis of %s%s", who, options.stage, mesh,
      lib.did_you_mean(options.stage, mesh.axis_names))
  end
  return mesh, p or 1
end

local function read(who, options)
  options = lib.options(who, options)
  local o = {axis = options.stage or AXIS, schedule = options.schedule or "gpipe", rngs = options.rngs}
  o.m = lib.check_integer(who, "microbatches", options.microbatches)
  if o.schedule ~= "gpipe" and o.schedule ~= "1f1b" then
    raise("E_VALUE", "%s: schedule = '%s'; there are gpipe and 1f1b", who, o.schedule)
  end
  if o.schedule == "1f1b" and not options.last then
    raise("E_VALUE", "%s: under 1f1b a microbatch goes back before later ones have gone forward, so that "
      .. "its loss must be known there: give last = function(x, part) ... return loss end, or take "
      .. "schedule = 'gpipe'", who)
  end
  for _, name in ipairs {"first", "last", "body"} do
    if options[name] ~= nil then lib.check_function(who .. ": " .. name, options[name]) end
  end
  o.first, o.last = options.first or function(part) return part end, options.last
  o.body = options.body or function(layer, x, rngs)
    lib.check_function(who .. ": a layer", layer)
    if rngs then return layer(x, rngs) end
    return layer(x)
  end
  o.mesh, o.p = places_of(who, options)
  return o
end

-- ---- what the functions read and give -------------------------------------------------------------------

-- While it is open, Params that are read go into a list.
local Reading = {__close = function(reading) core.note_reads(reading.before) end}

--- fn's results, and the Params that it has read.
local function reading(list, fn)
  local _ <close> = setmetatable({before = core.note_reads(list)}, Reading)
  return table.unpack {fn()}
end

--- Those of the Params that have gradients and do not belong to a stage.
local function shared_of(list, own)
  local boxes = {}
  for _, box in ipairs(list) do
    if box.kind == "param" and lib.floats[box.dtype] and not own[box] then boxes[#boxes + 1] = box end
  end
  return boxes
end

local function check_loss(loss)
  if not core.is_tensor(loss) or loss.ndim ~= 0 or not lib.floats[loss.dtype] then
    raise("E_GRAD", "%s: last gives %s; its first result is the loss of a microbatch, a float scalar "
      .. "(:mean())", WHO, core.is_tensor(loss) and core.typeof(loss) or lib.kind(loss))
  end
  return loss
end

--- Traces the functions once, for what they read and the types of what they give.
local function probe(job)
  local before, reads, hop, out = effects.count(), {first = {}, stage = {}, last = {}}, nil, nil
  core.trace_region(function(...)
    local part = job.part_of {...}
    local keys = job.keys and job.keys(0)
    local x = reading(reads.first, function() return job.first(part, 0) end)
    local y = reading(reads.stage, function() return job.stages:probe(x, keys) end)
    hop = job.stages:enter(x)
    if job.last then
      local loss, aux = reading(reads.last, function() return job.last(y, part, 0) end)
      out = {loss = check_loss(loss), aux = aux}
    end
  end, job.stacks, #job.stacks)
  if effects.count() > before then
    effects.take(before)
    raise("E_STATE", "%s: debug_print in a stage, first or last is not possible; let last give the value "
      .. "behind the loss, and print the sums", WHO)
  end
  job.boxes, job.types = {}, {hop = hop, out = out}
  for name, list in pairs(reads) do job.boxes[name] = shared_of(list, job.stages.is_own) end
end

--- All that the loops need to know but for the values on a place.
local function prepare(given, batch, o)
  local rows = microbatch.check_batch(WHO, batch, o.m, true)
  local job = {m = o.m, place = ticks.place(o.axis, o.p), stacks = {}}
  job.turn = o.schedule == "1f1b" and o.p - 1 or o.m + o.p - 1
  job.ring = o.schedule == "1f1b" and math.min(2 * o.p - 1, o.m) or o.m
  for i, x in ipairs(rows) do job.stacks[i] = microbatch.stacked(x, o.m) end
  function job.part_of(slices) return microbatch.part_of(batch, rows, slices) end
  job.stages = stages_of.new(given, o.p, o.axis, o.body)
  local layers = job.stages.layers
  job.key = o.rngs and rngs_of.stream(WHO, o.rngs, "dropout")()
  --- The keys of microbatch i: of each layer, of `first` (number `layers`), of `last` (behind it).
  job.keys = job.key and function(i)
    local key = random.fold_in(job.key, i)
    return function(number) return rngs_of.Rngs(random.fold_in(key, number)) end
  end
  function job.first(part, i) return o.first(part, job.keys and job.keys(i)(layers)) end
  job.last = o.last and function(x, part, i)
    return o.last(x, part, job.keys and job.keys(i)(layers + 1))
  end
  probe(job)
  return job
end

-- ---- on every place -------------------------------------------------------------------------------------

--- The values that the boxes hold.
local function values_of(boxes)
  local values = {}
  for name, list in pairs(boxes) do
    values[name] = {}
    for i, box in ipairs(list) do values[name][i] = box:get() end
  end
  return values
end

--- Runs fn(job) on every place: in it the job has that place's part of `own` and what it reads of `shared`.
local function on_places(job, o, own, shared, out_specs, fn)
  local key = job.key
  local function here(own_part, all, stacks, key_here)
    local stacks_before = job.stacks
    job.own, job.stacks, job.key, job.shared = own_part, stacks, key_here or nil, {}
    for name, list in pairs(all) do job.shared[name] = job.place:varying(list) end
    job.nothing = trace.map(WHO, job.types, "x", ticks.nothing_like)
    local results = table.pack(fn(job))
    job.stacks, job.key = stacks_before, key
    return table.unpack(results, 1, results.n)
  end
  if o.p == 1 then return here(own, shared, job.stacks, key) end
  local run = shard_map.shard_map(here, {mesh = o.mesh, axis_names = {o.axis},
    in_specs = {P(o.axis), P(), P(), key and P() or false}, out_specs = out_specs})
  return run(own, shared, job.stacks, key or false)
end

--- The floats among tensors.
local function floats_of(list)
  local floats = {}
  for _, x in ipairs(list) do floats[#floats + 1] = lib.floats[x.dtype] and x or nil end
  return floats
end

local GROUPS <const> = {"first", "stage", "last"}

--- Each Param that is read, once, and in which places of the groups it stands: {box, [group] = number}.
local function merged(boxes)
  local list, of = {}, {}
  for _, name in ipairs(GROUPS) do
    for i, box in ipairs(boxes[name]) do
      if not of[box] then
        of[box] = {box = box}
        list[#list + 1] = of[box]
      end
      of[box][name] = i
    end
  end
  return list
end

--- The gradients of Params that are read, each the sum of those of its groups: `first`, then stages, then `last`.
local function by_box(list, groups)
  local sums = {}
  for k, entry in ipairs(list) do
    for _, name in ipairs(GROUPS) do
      local g = entry[name] and groups[name][entry[name]]
      if g then sums[k] = sums[k] and sums[k] + g or g end
    end
  end
  return sums
end

--- The mean loss, whose gradients are there already, and the sums of what `last` gives besides.
local function with_loss(job, o)
  local first, shared, list = core.next_node(), values_of(job.boxes), merged(job.boxes)
  local own = job.stages.values
  local out, of_own, of_shared = on_places(job, o, own, shared, {P(), P(o.axis), P()}, function()
    local sums, gradients, groups = ticks.forward_and_backward(job)
    return sums, gradients, job.place:sum(by_box(list, groups))
  end)
  local loss = out.loss / o.m
  local xs, gradients, dxs = floats_of(own), table.move(of_shared, 1, #of_shared, #of_own + 1, of_own), {}
  for _, entry in ipairs(list) do xs[#xs + 1] = entry.box:get() end
  local from = core.next_node()
  local ct = core.placeholder(loss)
  for i, g in ipairs(gradients) do dxs[i] = (g / o.m) * core.op.astype(ct, {dtype = g.dtype}) end
  local y = core.custom_vjp(first, from, core.next_node(), xs, dxs, {loss}, {ct})
  local aux = trace.map(WHO, out.aux, "aux", function(x) return core.op.stop_gradient(x) end)
  return {loss = y[1], aux = aux}
end

--- What the last stage gives for the whole batch.
local function without_loss(job, o)
  local out = on_places(job, o, job.stages.values, values_of(job.boxes), P(), ticks.through)
  return trace.map(WHO, out, "x", function(x) return microbatch.unstacked(x) end)
end

-- ---- the call -------------------------------------------------------------------------------------------

--- Sends a batch in microbatches through layers that lie on the places along a mesh axis: place s has the layers
--- behind those of place s - 1, and works on one microbatch while the others do on theirs.
---
---     local loss = nn.pipeline(model.layers, {ids = ids, labels = labels}, {
---       microbatches = 8, schedule = "1f1b",
---       first = function(part) return model.embed(part.ids) end,
---       last = function(x, part) return cross_entropy(model.head(x), part.labels):mean() end,
---     })
---
---  layers: from nn.stack, whose dim 1 the axis splits; or a list of layers. Layers of one shape become a stack, of
---    others each place has a padded row of numbers per dtype. Where the places do not divide the layers the last
---    place has fewer, and passes over what is missing.
---  batch: see ml.microbatches; microbatch i has the rows i, i + m, i + 2m, ...
---  first(part, rngs): a microbatch as what the first layer takes, a tensor or a tree of them; default: part itself.
---  last(x, part, rngs): of what the last layer gives the loss of the microbatch, a float scalar, and behind it a
---    tree of tensors, or nothing. Without it the result is what the last layer gives, for all rows.
---  body(layer, x, rngs): how a layer is called; default layer(x), with rngs layer(x, rngs).
---  microbatches: how many. schedule: "gpipe" (default) holds all microbatches of a stage; "1f1b" at most 2p - 1 of p
---    stages, and wants `last`. With `last` a stage keeps what came to it, and computes its forward part twice.
---  rngs: for dropout: each layer has keys of its own for each microbatch, whatever the number of places.
---  stage: the mesh axis, default "stage". Where the mesh has none all layers are one stage. mesh: default that in
---    context.
---
--- With `last`: the mean of the losses, and the sums of the trees, which have no gradients. Loss and gradients of the
--- Params that the functions and layers use are those of ml.accumulate over the microbatches, bit for bit. The
--- functions run in a loop: they write no Param and print nothing.
--- Errors: E_VALUE (more stages than layers, 1f1b without last), E_SHAPE (rows that m does not divide, stages that do
--- not fit), E_SPEC (a layer is split along the axis).
---@param layers table
---@param batch any
---@param options table
---@return any ...
function M.pipeline(layers, batch, options)
  local o = read(WHO, options)
  local out = traced.run(function()
    local job = prepare(layers, batch, o)
    return o.last and with_loss(job, o) or {x = without_loss(job, o)}
  end, o.mesh)
  if not o.last then return out.x end
  return out.loss, out.aux
end

--- What a call of nn.pipeline with these arguments does: a table of figures whose tostring shows which microbatch each
--- stage works on in each tick, and what that costs (see pipeline_figures.lua).
---@return table
function M.explain_pipeline(layers, batch, options)
  local o, job = read("nn.explain_pipeline", options), nil
  traced.run(function()
    job = figures.taken_from(prepare(layers, batch, o))
    return {}
  end, o.mesh)
  job.schedule, job.places, job.microbatches = o.schedule, o.p, o.m
  return figures.new(job)
end

return M
