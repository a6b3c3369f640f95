-- devices: 8
-- profile_spec.lua: what a profile holds: valid JSON in the trace format, every step of a plan, on threads and
-- on devices, in order and nested; the table; and what is refused.
local helper = require "spec.helper"
local json = require "dkjson" -- comes with busted
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end

--- A step with products, fused ops, a loop and collectives, and its arguments.
local function step_of()
  local step = ml.jit(function(x, w, v)
    local h = ml.tanh(x:matmul(w)):matmul(v)
    local last = ml.fori_loop(0, 3, function(_, y) return y * 0.5 + 1 end, h)
    return (last * last):mean()
  end)
  local key = ml.random.key(5)
  return step, put(ml.random.normal(key, {64, 32}), "data"),
    put(ml.random.normal(key, {32, 48}), nil, "model"), put(ml.random.normal(key, {48, 16}), "model")
end

--- Runs fn with a profile around it. The file's text, and what stop gave.
local function record_text(fn)
  local path = helper.file ""
  assert.is_true(ml.profile.start(path))
  fn()
  local profile = assert(ml.profile.stop())
  assert.equal(path, profile.file)
  local handle <close> = assert(io.open(path, "rb"))
  return handle:read "a", profile
end

--- The same; the file as its slices and the names of its tracks.
local function record(fn)
  local text, profile = record_text(fn)
  local decoded, stop, message = json.decode(text)
  assert(decoded, message)
  assert.equal("\n", text:sub(stop))
  local slices, names = {}, {}
  for _, event in ipairs(decoded.traceEvents) do
    if event.ph == "X" then
      slices[#slices + 1] = event
    else
      assert.equal("M", event.ph)
      names[event.pid .. " " .. event.name .. " " .. event.tid] = event.args.name
    end
  end
  return slices, names, profile
end

local function select_of(slices, cat)
  local found = {}
  for _, s in ipairs(slices) do
    if s.cat == cat then found[#found + 1] = s end
  end
  return found
end

--- Raises unless what stands on one track nests, in the order of time.
local function check_nesting(slices)
  local open, before = {}, 0
  for _, s in ipairs(slices) do
    assert(s.ts >= before, "an event stands before one that began earlier")
    assert(s.dur >= 0)
    before = s.ts
    local stack = open[s.tid] or {}
    open[s.tid] = stack
    -- Ends are rounded to a nanosecond each.
    while #stack > 0 and stack[#stack] <= s.ts + 0.002 do stack[#stack] = nil end
    assert(#stack == 0 or s.ts + s.dur <= stack[#stack] + 0.002, "an event reaches out of the one around it")
    stack[#stack + 1] = s.ts + s.dur
  end
end

describe("a profile", function()
  it("has every step of the plan, with op, line, role and figures", function()
    local step, x, w, v = step_of()
    step(x, w, v)
    local slices = record(function() step(x, w, v) end)
    local seen = {}
    for _, cat in ipairs {"kernel", "collective"} do
      for _, s in ipairs(select_of(slices, cat)) do
        seen[s.args.step] = seen[s.args.step] or {}
        table.insert(seen[s.args.step], s)
      end
    end
    local kinds = {}
    for i, planned in ipairs(step:plan(x, w, v):steps()) do
      local ran = seen[i]
      if not ran then
        assert.equal("scan", planned.op)
      else
        local expected = table.concat({planned.op, table.unpack(planned.ops)}, " ")
        for _, s in ipairs(ran) do
          assert.equal(expected, s.name)
          assert.equal(planned.role, s.args.role)
          assert.equal(table.concat(planned.where, ", "), s.args.line)
        end
        kinds[planned.op] = ran
      end
    end
    assert.equal(8, #kinds.matmul, "a product for each block")
    local flops = 0
    for _, s in ipairs(kinds.matmul) do flops = flops + s.args.flops end
    assert.equal(8 * 2 * 16 * 24 * 16, flops)
    assert.truthy(kinds.matmul[1].args.line:find "profile_spec.lua:%d+")
    local axes = {}
    for _, s in ipairs(select_of(slices, "collective")) do
      axes[s.args.axes] = true
      assert(s.args.bytes > 0 and s.args["GB/s"] > 0)
    end
    assert.same({model = true, data = true}, axes)
  end)

  it("says how many bytes each piece reads and writes", function()
    local x = put(ml.ones {8, 16}, "data")
    local step = ml.jit(function(a) return a:sum(1) end)
    step(x)
    local slices = record(function() step(x) end)
    local rows = select_of(slices, "kernel")
    assert.equal(4, #rows)
    for _, s in ipairs(rows) do assert.same({4 * (2 * 16 + 16), 2 * 16}, {s.args.bytes, s.args.flops}) end
    local sums = 0
    for _, s in ipairs(select_of(slices, "collective")) do sums = sums + s.args.bytes end
    assert.equal(4 * (4 * 16 + 16), sums) -- of four parts one sum
  end)

  it("has the call around the run around its pieces, and what came before them", function()
    local step, x, w, v = step_of()
    ml.core.clear_plans()
    local slices = record(function()
      step(x, w, v)
      step(x, w, v)
    end)
    check_nesting(slices)
    local at = {}
    for _, s in ipairs(select_of(slices, "host")) do
      at[s.name] = at[s.name] or {}
      table.insert(at[s.name], s)
    end
    assert.same({2, 1, 1, 1, 2}, {#at.call, #at.trace, #at.plan, #at.bind, #at.run})
    assert.truthy(at.call[1].args.line:find "profile_spec.lua:%d+")
    assert.equal(at.call[1].args.line, at.trace[1].args.line)
    assert.equal(at.run[1].args.plan, at.run[2].args.plan)
    for i, run in ipairs(at.run) do
      local call = at.call[i]
      assert(call.ts <= run.ts and run.ts + run.dur <= call.ts + call.dur + 0.002)
    end
    assert(at.trace[1].ts + at.trace[1].dur <= at.plan[1].ts + 0.002)
    for _, s in ipairs(select_of(slices, "kernel")) do
      local within = 0
      for _, run in ipairs(at.run) do
        if s.ts >= run.ts and s.ts + s.dur <= run.ts + run.dur + 0.002 then within = within + 1 end
      end
      assert.equal(1, within, s.name)
    end
  end)

  it("has a track for each thread and each device, with the pieces of the device's slots", function()
    local step, x, w, v = step_of()
    step(x, w, v)
    local slices, names, profile = record(function() step(x, w, v) end)
    assert.equal("thread 0 (main)", names["1 thread_name 0"])
    local device_of, found = {}, {}
    for key, name in pairs(names) do
      local tid = key:match "^2 thread_name (%d+)$"
      if tid then device_of[tonumber(tid)] = assert(tonumber(name:match "^device (%d)")) end
    end
    for _, s in ipairs(select_of(slices, "device")) do
      local device = assert(device_of[s.tid])
      if s.name == "matmul" then found[device] = (found[device] or 0) + 1 end
    end
    -- Each device has a block of each product; the first is [16, 24] of [64, 48].
    for device = 0, 7 do assert(found[device] and found[device] >= 2, "device " .. device) end
    assert.equal(8, #profile.devices)
    local of_threads, of_devices = 0, 0
    for _, share in ipairs(profile.threads) do of_threads = of_threads + share / #profile.threads end
    for _, share in ipairs(profile.devices) do of_devices = of_devices + share end
    helper.close(of_threads, of_devices, 1e-9)
  end)

  it("gives a table by op and line, which counts calls, not pieces", function()
    local step, x, w, v = step_of()
    step(x, w, v)
    local _, _, profile = record(function()
      for _ = 1, 5 do step(x, w, v) end
    end)
    local share, reduced = 0, nil
    for i, row in ipairs(profile.rows) do
      share = share + row.share
      assert(i == 1 or row.seconds <= profile.rows[i - 1].seconds)
      assert(row.calls > 0 and row.calls % 5 == 0, row.op)
      if row.op == "all_reduce" and row.where:find "profile_spec" then reduced = row end
    end
    helper.close(1, share, 1e-9)
    assert.truthy(reduced)
    local text = tostring(profile)
    assert.truthy(text:find("matmul", 1, true) and text:find("of limit", 1, true))
    assert.truthy(profile:text(1):find("and %d+ more"))
  end)

  it("keeps the latest pieces where there are more than it can hold, and counts all", function()
    local x, n = ml.ones {2}, 66000
    local step = ml.jit(function(y) return ml.fori_loop(0, n, function(_, z) return z * 0.5 + 1 end, y) end)
    step(x)
    local text, profile = record_text(function() step(x) end)
    local _, kept = text:gsub('"cat":"kernel"', "")
    assert(kept >= 65536 and kept < n)
    assert.equal(n, profile.rows[1].calls)
  end)

  it("is valid where names are no UTF-8 and hold quotes", function()
    local code = "local ml = ... return ml.jit(function(x) return x:matmul(x) end)"
    local chunk = load(code, '=a"b\\c\xff\x01é')
    local step, x = chunk(ml), ml.ones {4, 4}
    local slices = record(function() step(x) end)
    local kernel = select_of(slices, "kernel")[1]
    assert.equal('a"b\\c\u{ff}\u{1}é:1', kernel.args.line)
  end)

  it("may begin and end again and again, and leaves nothing behind", function()
    local step, x, w, v = step_of()
    assert.equal(0, helper.left_behind(function() record(function() step(x, w, v) end) end))
  end)
end)

describe("a profile is refused", function()
  it("where the file cannot be written", function()
    local ok, message, code = ml.profile.start "/nonexistent/trace.json"
    assert.is_nil(ok)
    assert.equal("E_IO", code)
    assert.equal("profile: cannot write /nonexistent/trace.json: No such file or directory", message)
  end)

  it("where the disk is full", function()
    if not io.open("/dev/full", "w") then return end
    assert.is_true(ml.profile.start "/dev/full")
    local step, x, w, v = step_of()
    step(x, w, v)
    local profile, message, code = ml.profile.stop()
    assert.is_nil(profile)
    assert.equal("E_IO", code)
    assert.truthy(message:find("cannot write /dev/full", 1, true))
  end)

  it("where another is being recorded, or none, or within a traced function", function()
    local path = helper.file ""
    helper.raises("[E_STATE] profile.stop: nothing is being recorded; ml.profile.start(FILE) or the flag",
      ml.profile.stop)
    ml.profile.start(path)
    helper.raises("profile: " .. path .. " is being recorded already; ml.profile.stop() ends that",
      ml.profile.start, helper.file "")
    ml.profile.stop()
    helper.raises("[E_TRACED] profile.start in a traced function", ml.jit(function(x)
      ml.profile.start(path)
      return x
    end), ml.ones {2})
    helper.raises("[E_VALUE] profile.start: the file", ml.profile.start, 5)
  end)
end)

describe("--profile=FILE", function()
  it("records a script, and prints the table at the end", function()
    local path = helper.file ""
    local script = [[local ml = require "meshlua"
      local x = ml.ones {64, 64} print(x:matmul(x):sum():item())]]
    local out, err, code = helper.run {"--profile=" .. path, "-e", script}
    assert.same({"262144.0\n", 0}, {out, code})
    assert.truthy(err:find("^%S+ s; threads busy .-; events in " .. path:gsub("%p", "%%%0")))
    assert.truthy(err:find "\nmatmul +%(command line%):2 +1 ")
    local handle <close> = assert(io.open(path, "rb"))
    assert.truthy(json.decode(handle:read "a"))
  end)

  it("is written where the script ends the program itself", function()
    local path = helper.file ""
    local _, _, code = helper.run {"--profile=" .. path, "-e",
      'local ml = require "meshlua" local _ = ml.ones {2} + 1 os.exit(7, true)'}
    assert.equal(7, code)
    local handle <close> = assert(io.open(path, "rb"))
    assert.truthy(json.decode(handle:read "a"))
  end)

  it("ends the program with 3 where the file cannot be written", function()
    local _, err, code = helper.run {"--profile=/nonexistent/trace.json", "-e", ""}
    assert.equal(3, code)
    assert.truthy(err:find("cannot write /nonexistent/trace.json: No such file", 1, true))
  end)
end)

describe("counters", function()
  it("count collectives each time that they run, and what they send by kind", function()
    local row = ml.make_mesh({8}, {"x"})
    local x = ml.device_put(ml.ones {8, 16}, ml.NamedSharding(row, ml.P("x")))
    local sum = ml.jit(function(a) return a:sum(1) end, {mesh = row})
    local loop = ml.jit(function(a)
      return ml.fori_loop(0, 3, function(_, c) return c + (a * c):sum(1) end, ml.ones {16})
    end, {mesh = row})
    local function counts(fn)
      fn(x)
      local before = ml.core.counters(3)
      fn(x)
      fn(x)
      local after = ml.core.counters(3)
      return after.collectives - before.collectives, after.plans - before.plans,
        after.sent.all_reduce - before.sent.all_reduce
    end
    local each = #sum:plan(x):collectives()
    assert.equal(1, each)
    local collectives, plans, sent = counts(sum)
    assert.same({2, 2}, {collectives, plans})
    assert.equal(2 * 2 * 7 / 8 * sum:plan(x):collectives()[1].bytes, sent) -- in a ring
    collectives, plans, sent = counts(loop)
    assert.same({2 * 3, 2, 2 * 3 * 112.0}, {collectives, plans, sent})
  end)

  --- The operations that a device has done in the call: all, and those of matrix products.
  local function operations(fn, ...)
    fn(...)
    local before = ml.core.counters()
    fn(...)
    local after = ml.core.counters()
    return after.flops - before.flops, after.matmul_flops - before.matmul_flops
  end

  it("tell operations of matrix products from the others", function()
    local x, w = ml.ones {8, 16}, ml.ones {16, 4}
    local all, products = operations(ml.jit(function(a, b) return ml.tanh(a:matmul(b)) end), x, w)
    assert.equal(2 * 8 * 16 * 4, products)
    assert.is_true(all > products)
    all, products = operations(ml.jit(function(a) return a + 1 end), x)
    assert.equal(0, products)
    assert.is_true(all > 0)
  end)

  it("count attention as products, masked or not, with its gradient", function()
    local x, seen = ml.ones {1, 8, 2, 4}, ml.full({8, 8}, true)
    local forward = 2 * 2 * 2 * 8 * 8 * 4 -- two products of two heads
    for _, options in ipairs {{}, {mask = seen}} do
      local function attend(a) return ml.nn.attention(a, a, a, options) end
      local _, once = operations(ml.jit(attend), x)
      local _, both = operations(ml.jit(function(a)
        return ml.grad(function(b) return (attend(b) ^ 2):sum() end)(a)
      end), x)
      assert.equal(forward, once)
      assert.equal(3.5 * forward, both)
    end
  end)
end)
