-- transfer_spec.lua: what lies on a GPU that the stand-ins play (standin/) into files, and out of them.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell, folder, check = helper.shell, standin.folder, standin.it

local source = [[
local ml = require "meshlua"
local core = ml.core
local n = ml.device_count()
local mesh = n > 1 and ml.make_mesh({n}, {"x"})
local rows = mesh and ml.NamedSharding(mesh, ml.P("x", nil)) or nil
local shape = {8, 12}
local params = {}
for i = 1, 3 do
  local x = ml.random.normal(ml.random.key(i), shape)
  params[i] = core.box_new(mesh and i > 1 and ml.device_put(x, rows) or x, {kind = "param"})
end
local step = ml.jit(function(ps, x)
  for _, p in ipairs(ps) do p:set(p + (p * 0.5):matmul(x):sum() * 0.01) end
end):bind(params)
local x = ml.random.normal(ml.random.key(9), {12, 4})

local function piece(from)
  from.at, from.size, from.factors = {0, 0}, shape, {{1, 8, 12}, {2, 12, 1}}
  return from
end
local function write(options)
  local w = core.writer(options)
  local f = assert(w:file(FILE, {size = 3 * 384, create = true}))
  for i, p in ipairs(params) do w:add(p, i, {piece {file = f, begin = (i - 1) * 384, dtype = "float32"}}) end
  return w, w:start()
end
local function read()
  local f <close> = io.open(FILE, "rb")
  return f:read "a"
end
local function state()
  local all = {}
  for i, p in ipairs(params) do all[i] = p:bytes() end
  return table.concat(all)
end
for i = 1, 20 + 3 do
  step(x)
  if i <= 3 or not SAVES then goto next end
  local before = state()
  local w, started = write()
  assert(started)
  step(x) -- runs while it is held
  assert(w:wait())
  w:release()
  assert(before == read() and before ~= state())
  ::next::
end
if not SAVES then return end

local w, started = write {memory = 400} -- the others are copied one by one
assert(not started and w:held() <= 400)
w:run()
assert(w:wait())
w:release()
assert(state() == read())

local plan = core.catalog_layout("safetensors", {{name = "x", encoding = "F32", shape = {24, 12}}}, {})
local f <close> = io.open(FILE, "wb")
f:write(plan.header, state())
f:close()
local c = assert(core.catalog(FILE))
for i, p in ipairs(params) do
  local pieces = {piece {catalog = c, entry = 1, offset = (i - 1) * 96}}
  local back = core.catalog_load("float32", shape, rows, pieces)
  assert(back:bytes() == p:bytes())
end
]]

--- How many graphs are captured.
local function captures(devices, saves)
  local log = os.tmpname()
  local path = helper.file(("SAVES, FILE = %s, %q\n%s"):format(saves, helper.file "", source))
  local out, err, code = shell(('STANDIN_GPUS=2 STANDIN_LOG=%s MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s ' ..
    '"$MESHLUA" --devices=%s %s'):format(log, standin.cache, folder, devices, path))
  local file <close> = assert(io.open(log))
  os.remove(log)
  assert.equal("0 ", code .. " " .. out, err)
  return select(2, file:read "a":gsub("cudaGraphInstantiate", ""))
end

describe("a state on GPUs", function()
  check("is copied when it is saved: its step is captured once, whatever is saved", function()
    assert.equal(1, captures("cuda:0", "false"))
    assert.equal(1, captures("cuda:0", "true"))
  end)

  check("is written from several, and read to them", function()
    assert.equal(captures("cuda:0,1", "false"), captures("cuda:0,1", "true"))
  end)
end)
