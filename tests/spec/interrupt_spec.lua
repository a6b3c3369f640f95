-- interrupt_spec.lua: Ctrl-C, wherever the script is.
local helper = require "spec.helper"
local shell, file = helper.shell, helper.file

describe("Ctrl-C", function()
  -- The thread sanitizer hands a signal over only in a call that it knows.
  local spin = (rawget(_G, "SANITIZE") or ""):find "thread" and "os.time()" or "local x = 1"

  --- Runs the script, which makes the file `...` when it is ready, and interrupts it `times` times.
  local function interrupt(script, times)
    local ready = os.tmpname()
    os.remove(ready)
    local command = [["$MESHLUA" %s %s & pid=$!
for i in $(seq 1000); do [ -e %s ] && break; sleep 0.01; done
for i in %s; do kill -INT $pid; sleep 0.1; done
(sleep 10; kill -KILL $pid) 2>/dev/null & watch=$!
wait $pid; code=$?
kill $watch 2>/dev/null
exit $code]]
    local numbers = {}
    for i = 1, times do numbers[i] = tostring(i) end
    local out, err, code = shell(command:format(script, ready, ready, table.concat(numbers, " ")))
    os.remove(ready)
    return out, err, code
  end

  it("stops a loop at its line; files are closed whole; the code is 130", function()
    local name = file("")
    local script = file(([[
local ready = ...
local f <close> = io.open("%s", "w")
f:write("whole")
io.open(ready, "w"):close()
while true do
  %s
end]]):format(name, spin), ".lua")
    local out, err, code = interrupt(script, 1)
    assert.same({"", 130}, {out, code})
    assert.truthy(err:find "^[^\n]*%.lua:[456]: %[E_INTERRUPT%] interrupted\n$", err)
    local handle <close> = io.open(name)
    assert.equal("whole", handle:read "a")
  end)

  it("ends the process the second time, where the script caught the first", function()
    local script = file(([[
io.open((...), "w"):close()
while true do pcall(function() while true do %s end end) end]]):format(spin), ".lua")
    assert.equal(130, select(3, interrupt(script, 2)))
  end)

  it("does not cut a __close short", function()
    local script = file(([[
local ready = ...
local function count() local n = 0 for i = 1, 3e7 do n = n + 1 end return n end
do
  local guard <close> = setmetatable({}, {__close = function()
    io.open(ready, "w"):close()
    print(count())
  end})
end
while true do %s end]]):format(spin), ".lua")
    local out, _, code = interrupt(script, 1)
    assert.same({"30000000\n", 130}, {out, code})
  end)

  it("leaves a model as it was when it hits a trace", function()
    local script = file(([[
local ml = require "meshlua"
local box = ml.core.box_new(ml.ones({4}), {kind = "param"})
local ready = ...
local step = ml.jit(function(b)
  b:set(b:get() + 1)
  local f = io.open(ready, "w")
  if f then f:close() end
  while true do %s end
end)
local ok, err = pcall(step, box)
print(ok, err:match "E_INTERRUPT", box:get():sum():item(), ml.core.is_tracing())
print((box:get() + 1):sum():item())]]):format(spin), ".lua")
    local out, err = interrupt(script, 1)
    assert.equal("false\tE_INTERRUPT\t4.0\tfalse\n8.0\n", out, err)
  end)

  local SIZE = helper.watched and "64" or "512" -- of products that take a while
  local READY = "local path = ... local function ready() io.open(path, 'w'):close() end\n"

  --- The script calls ready() where it comes to what is interrupted; code 130, soon.
  local function stops(script, pattern)
    script = script:gsub("SPIN", spin):gsub("SIZE", SIZE)
    local out, err, code = interrupt(file(READY .. script, ".lua"), 1)
    assert.equal(130, code, err)
    assert.truthy(err:find(pattern or "^[^\n]*%.lua:%d+: %[E_INTERRUPT%] interrupted"), err)
    return out
  end

  it("once is enough inside coroutines", function()
    stops "coroutine.wrap(function() ready() while true do SPIN end end)()"
    stops [[local function deep(n)
  if n == 0 then ready() while true do SPIN end end
  coroutine.wrap(deep)(n - 1)
end
deep(5)]]
    -- Who takes no notice of how a coroutine ended is stopped, too.
    stops [[local co = coroutine.create(function()
  coroutine.resume(coroutine.create(function() ready() while true do SPIN end end))
  while true do SPIN end
end)
coroutine.resume(co)
while true do SPIN end]]
    stops [[ready()
local list = {}
for i = 1, 10 do
  list[i] = coroutine.create(function() while true do for _ = 1, 1000 do SPIN end coroutine.yield() end end)
end
while true do for i = 1, 10 do coroutine.resume(list[i]) end end]]
  end)

  it("may be caught in a coroutine as elsewhere", function()
    local out, err, code = interrupt(file(READY .. ([[
local caught = coroutine.wrap(function()
  local ok, message = pcall(function() ready() while true do %s end end)
  coroutine.yield(ok, message:match "E_%%u+")
  return "on"
end)
print(caught())
print(caught())
print(coroutine.resume(coroutine.create(function() error "mine" end)))]]):format(spin), ".lua"), 1)
    assert.equal(0, code, err)
    assert.truthy(out:find "^false\tE_INTERRUPT\non\nfalse\t[^\n]+: mine\n$", out)
  end)

  it("ends a long loop or program that writes no argument before it is over", function()
    local loop = [[local ml = require "meshlua"
local function run()
  return ml.fori_loop(0, 2000000000, function(_, c) return c * 0.5 + 1 end, ml.ones {64})
end
ready()
]]
    stops(loop .. "run()")
    stops(loop .. "coroutine.wrap(run)()")
    local chain = [[local ml = require "meshlua"
local w = ml.ones {SIZE, SIZE}
local f = ml.jit(function(x) for i = 1, 300 do x = x:matmul(w) * 1e-3 end return x end)
f:plan(w)
ready()
]]
    stops(chain .. "while true do f(w) end")
    stops(chain .. "coroutine.wrap(function() while true do f(w) end end)()")
    stops(chain .. "local x = w while true do x = x:matmul(w) * 1e-3 end")
  end)

  it("is caught once where a program ran", function()
    local out, err, code = interrupt(file(READY .. [[
local ml = require "meshlua"
local x = ml.ones {64}
local function half(_, c) return c * 0.5 + 1 end
print(pcall(function() ready() return ml.fori_loop(0, 2000000000, half, x) end))
print(x:sum():item())]], ".lua"), 1)
    assert.equal(0, code, err)
    assert.truthy(out:find "^false\t[^\n]*E_INTERRUPT[^\n]*\n64.0\n$", out)
  end)

  it("does not cut short what writes its arguments", function()
    local out, err, code = interrupt(file(READY .. ([[
local ml = require "meshlua"
local box = ml.core.box_new(ml.ones {SIZE, SIZE}, {kind = "param"})
local w = ml.ones {SIZE, SIZE}
local step = ml.jit(function(b)
  local x = b:get()
  for _ = 1, 60 do x = x:matmul(w) * (1 / SIZE) end
  b:set(x)
end)
step(box)
pcall(function() ready() while true do step(box) end end)
print(box:get():mean():item())]]):gsub("SIZE", SIZE), ".lua"), 1)
    assert.equal(0, code, err)
    assert.equal("1.0\n", out)
  end)

  it("leaves Params as they were, and of what is donated nothing that is half written", function()
    local script = [[
local ml = require "meshlua"
local box = ml.core.box_new(ml.ones {64}, {kind = "param"})
local function long(x) return ml.fori_loop(0, 2000000000, function(_, c) return c * 0.5 + 1 end, x) end
local step = ml.jit(function(b, x) b:set(long(b:get())) return long(x) end, {donate = {2}})
local x = ml.tensor(ml.ones({64}):totable())
step:plan(box, x)
print(pcall(function() ready() return step(box, x) end))
local ok, text = pcall(function() return x:sum():item() end)
print(box:sum():item(), ok and text == 64.0 or text:match "E_DELETED.*")]]
    local out, err, code = interrupt(file(READY .. script, ".lua"), 1)
    assert.equal(0, code, err)
    assert.truthy(out:find "^false\t[^\n]*E_INTERRUPT[^\n]*\n64.0\t", out)
    assert.truthy(out:find "\ttrue\n$" or out:find "donated to failed half%-way\n$", out)
  end)
end)

describe("coroutines", function()
  it("are those of stock Lua", function()
    local script = file([[
local function show(...) print(select("#", ...), ...) end
local co = coroutine.create(function(a, b)
  show("in", a, b, coroutine.isyieldable(), select(2, coroutine.running()))
  show(coroutine.yield(1, nil))
  return nil, 2
end)
show(coroutine.resume(co, "x", nil))
show(coroutine.status(co), coroutine.resume(co, nil, "y"))
show(coroutine.resume(co))
show(pcall(coroutine.resume, 5))
local wrap = coroutine.wrap(function(...) show(...) error({code = 5}) end)
local ok, e = pcall(wrap, nil, 1)
show(ok, e.code)
show(pcall(wrap))
local closed = {}
local w = coroutine.wrap(function()
  local g <close> = setmetatable({}, {__close = function(_, err) closed[1] = err end})
  error "late"
end)
show(pcall(function() w() end))
show(closed[1])
show(pcall(coroutine.wrap, 5))
local n = 0
local function deep() n = n + 1 return coroutine.wrap(deep)() end
local fine, text = pcall(deep)
show(fine, text:match "C stack overflow", n > 50)
for i in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) do show(i) end
show(coroutine.close(coroutine.create(print)))
show(select(2, pcall(coroutine.wrap(function() local x = nil; x() end))))
print(debug.traceback("t"):match "traceback")
]], ".lua")
    local out, err, code = shell('"$MESHLUA" ' .. script)
    assert.equal(0, code, err)
    local stock = shell("lua5.4 " .. script)
    if stock == "" then helper.pending "there is no lua5.4" end
    assert.equal(stock, out)
  end)
end)
