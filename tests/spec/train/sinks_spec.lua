-- sinks_spec.lua: where a run's rows go: TensorBoard's files, a command, lines.
local core = require "meshlua.core"
local dkjson = require "dkjson"
local events = require "meshlua.train.events"
local files = require "meshlua.train.files"
local helper = require "spec.helper"
local oracle = require "spec.oracle"
local pipe = require "meshlua.train.pipe"
local sinks = require "meshlua.train.sinks"
local read, folder = helper.read, helper.folder

local function hex(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- Numbers that JSON has no word for stand as texts.
local function plain(row)
  local out = {}
  for key, x in pairs(row) do out[key] = type(x) == "string" and tonumber((x:gsub("inf", "1e999"))) or x end
  return out
end

describe("TensorBoard's events", function()
  it("have the checksums of RFC 3720, and the bytes that TensorBoard's own classes make", function()
    assert.equal(0xe3069283, events.crc32c "123456789")
    assert.equal(0x8a9136aa, events.crc32c(("\0"):rep(32)))
    assert.equal(0x62a8ab43, events.crc32c(("\xff"):rep(32)))
    assert.equal("1800000000000000a37f4b220900000000000000001a0d627261696e2e4576656e743a32eedf28a3",
      hex(events.header(0)))
    assert.equal("1a00000000000000129bd82d09000000000000000010012a0d0a0b0a046c6f7373150000"
      .. "2040bbfe84c0", hex(events.scalars({step = 1, loss = 2.5}, 0)))
    local wanted = oracle.read "events"
    assert.equal(wanted.header, hex(events.header(wanted.time)))
    assert.equal(wanted.restart.record, hex(events.restart(wanted.restart.step, wanted.time)))
    for _, row in ipairs(wanted.rows) do
      assert.equal(row.record, hex(events.scalars(plain(row.row), wanted.time)))
    end
    for _, t in ipairs(wanted.texts) do
      assert.equal(t.record, hex(events.text(t.tag, t.text, t.step, wanted.time)))
    end
  end)

  it("are read by TensorBoard with every value equal, over a run that goes on", function()
    local _, _, code = helper.shell "python3 -c 'import tensorboard' 2>/dev/null"
    if code ~= 0 then helper.pending "python3 finds no tensorboard here" end
    local path, wanted, state = folder(), {}, 12345
    local function write(done, first, last)
      local file = assert(events.open(path, done))
      for step = first, last do
        local row = {step = step, wait_ms = 0.0, shares = {1}}
        for _, key in ipairs {"loss", "grad_norm", "lr"} do
          state = (state * 1103515245 + 12345) % (1 << 31)
          row[key] = ("<f"):unpack(("<I4"):pack(state))
          if row[key] ~= row[key] then row[key] = 0.5 end
          wanted[key] = wanted[key] or {}
          wanted[key][step] = hex(("<f"):pack(row[key]))
        end
        assert(file:add(row))
      end
      assert(file:note("sample", "step " .. last .. "\n|ä|"))
      file:close()
    end
    write(nil, 1, 40)
    core.sleep(1) -- TensorBoard tells files by the second
    core.sleep(0.1)
    write(25, 26, 50)
    local out
    out, _, code = helper.shell("python3 tests/oracle/events.py read " .. path .. " 2>/dev/null")
    assert.equal(0, code, out)
    local found = assert(dkjson.decode(out))
    for key, values in pairs(wanted) do
      assert.equal(50, #found.scalars[key], key)
      for step, pair in ipairs(found.scalars[key]) do assert.same({step, values[step]}, pair) end
    end
    assert.equal(50, #found.scalars.wait_ms)
    assert.is_nil(found.scalars.shares)
    assert.same({50, "step 50\n|ä|"}, found.texts.sample[#found.texts.sample])
  end)

  it("say where they cannot be written, and stay whole where the disk is full", function()
    local path = helper.file ""
    local file, message, code = events.open(path .. "/below")
    assert.same({nil, "E_IO"}, {file, code})
    assert.truthy(message:find(path, 1, true))
    local full = assert(files.append "/dev/full")
    local ok, why = full:put "x"
    assert.is_nil(ok)
    assert.truthy(why:find("/dev/full: No space left on device", 1, true))
    full:close()
  end)
end)

describe("a command", function()
  it("gets every row as a line of JSON, in its order, and is waited for", function()
    local path = helper.file ""
    local to = assert(pipe.open(("sleep 0.1; cat >%s"):format(path), {"step", "loss"}))
    for step = 1, 3000 do
      assert(to:add {step = step, loss = 1 / step, validation_loss = step == 9 and 2.5 or nil})
    end
    assert(to:close())
    local n = 0
    for line in io.lines(path) do
      n = n + 1
      local row = dkjson.decode(line)
      assert.equal(n, row.step)
      assert.near(1 / n, row.loss, 1e-8)
      assert.equal(n == 9 and 2.5 or nil, row.validation_loss)
    end
    assert.equal(3000, n)
  end)

  it("that dies is an error with its name, code and what did not get there", function()
    local to = assert(pipe.open("read line; exit 7", {"step"}))
    local ok, message, step = true, nil, 0
    while ok do
      step = step + 1
      ok, message = to:add {step = step}
      core.sleep(0.005)
    end
    assert.truthy(message:find("--metrics='|read line; exit 7': it has ended with code 7 after ", 1, true),
      message)
    assert.truthy(message:find "of JSON did not get there", message)
    to = assert(pipe.open("cat >/dev/null; kill -9 $$", {"step"}))
    assert(to:add {step = 1})
    ok, message = to:close()
    assert.is_nil(ok)
    assert.truthy(message:find("signal 9 has ended it after 1 row", 1, true), message)
    assert.same({nil, "--metrics='|': expected a command behind the |", "E_VALUE"}, {pipe.open("  ", {})})
  end)

  it("that reads nothing makes no step wait; that is said, and has an end", function()
    local patience, most, say, said = pipe.PATIENCE, pipe.MOST, pipe.say, {}
    pipe.PATIENCE, pipe.MOST = 0.05, 200000
    function pipe.say(text) said[#said + 1] = text end
    local to = assert(pipe.open("exec sleep 20 >/dev/null 2>&1", {"step"}))
    local began, ok, message, rows = core.clock(), true, nil, 0
    while ok do
      rows = rows + 1
      if rows == 6000 then core.sleep(0.1) end
      ok, message = to:add {step = rows, loss = 0.123456789}
    end
    pipe.say, pipe.PATIENCE, pipe.MOST = say, patience, most
    assert.truthy(core.clock() - began < 5)
    assert.truthy(message:find("it does not read, and 195.33 KiB wait after " .. rows .. " rows", 1, true),
      message)
    assert.equal(1, #said)
    assert.truthy(said[1]:find("it has read nothing for ", 1, true), said[1])
  end)
end)

describe("lines", function()
  it("have the columns first, then what else a row has; as .csv the columns alone", function()
    local path, csv = helper.file "", helper.file("", ".csv")
    for i, place in ipairs {path, csv} do
      local to = assert(files.lines(place, {"step", "loss", "lr"}))
      assert(to:add {step = 1, loss = 2.5, lr = 0.1, event = "skip", busy = 0.5})
      assert(to:add {step = 2, loss = 0 / 0})
      assert(to:add {step = 3, loss = 1.5})
      to:close()
      local more = assert(files.lines(place, {"step", "loss", "lr"}, 2))
      assert(more:add {step = 3, lr = 1})
      more:close()
      assert.equal(i == 1 and '{"step":1,"loss":2.5,"lr":0.1,"busy":0.5,"event":"skip"}\n'
        .. '{"step":2,"loss":null}\n{"step":3,"lr":1}\n' or "step,loss,lr\n1,2.5,0.1\n2,nan,\n3,,1\n",
        read(place))
    end
  end)

  it("are asked for by options, which are checked", function()
    local function fault(values)
      for key, value in pairs {metrics = "", out = "", resume = "", tensorboard = ""} do
        values[key] = values[key] or value
      end
      return sinks.fault(values)
    end
    assert.is_nil(fault {})
    assert.equal("--tensorboard needs a folder: --tensorboard=... or --out=...", fault {tensorboard = "true"})
    local path = folder()
    assert.is_nil(fault {tensorboard = path})
    assert(events.open(path)):close()
    assert.equal(("--tensorboard=%s: the folder holds 1 file of an earlier run; take another folder, or "
      .. "--overwrite to replace them"):format(path), fault {tensorboard = path})
    assert.is_nil(fault {tensorboard = path, overwrite = true})
    assert.is_nil(fault {tensorboard = path, resume = "auto"})
  end)
end)
