-- algorithm_spec.lua: which of cublasLt's algorithms makes a product, on GPUs that the stand-ins play (see
-- standin/cublaslt.c): algorithm i adds up in i + 1 parts, so that the bits say which it was.
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell, folder = helper.shell, standin.folder

local source = [[
local ml = require "meshlua"
local function matrix(rows, columns)
  local t = {}
  for i = 1, rows do
    t[i] = {}
    for j = 1, columns do t[i][j] = math.sin(i * 1.7 + j * j) end
  end
  return ml.tensor(t)
end
local x, w = matrix(52, 52), matrix(52, 52)
local step = ml.jit(function(a, b) return a:matmul(b):matmul(b):matmul(b) end) -- three of one shape
for _ = 1, 3 do
  for _, row in ipairs(step(x, w):totable()) do
    for _, value in ipairs(row) do io.write(("%a "):format(value)) end
  end
  print()
end
]]

-- A product of what lies at addresses of 4 bytes, of 16, and of 4 again.
local elsewhere = [[
local ml = require "meshlua"
local long, w = ml.arange(53 * 52 + 0.0), ml.ones {52, 52}
local step = ml.jit(function(a, b) return a:reshape(52, 52):matmul(b) end)
for _, first in ipairs {2, 1, 2} do
  local ok, y = pcall(step, long:slice({first, first + 52 * 52 - 1}), w)
  print(ok and y:at(1, 1):item() or y)
end
]]

local root, cache, program -- of the running spec; the cache is to be made, in a folder that is not there

--- Runs the program, with the spec's folder for what is kept or another. Its three lines of output, and how often
--- the log has each of its lines.
local function run(keep, more)
  local path = os.tmpname()
  local out, err, code = shell(([[MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s STANDIN_CUBLASLT_LOG=%s %s "$MESHLUA" \
    --devices=cuda %s]]):format(keep or cache, folder, path, more or "", program))
  assert.equal(0, code, err)
  local lines, calls = {}, {}
  for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
  for line in io.lines(path) do
    calls[line] = (calls[line] or 0) + 1
    calls.last = line
  end
  os.remove(path)
  assert.equal(3, #lines)
  return lines, calls
end

--- The kept file: its path, the product in words, and the algorithm.
local function kept()
  local path = shell(("ls %s/product-*"):format(cache)):match "^[^\n]+"
  local file <close> = assert(io.open(path))
  local key, algorithm = file:read("l", "l")
  return path, key, algorithm
end

local function write(path, text)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
end

describe("the algorithm of a product", function()
  before_each(function()
    root, program = shell("mktemp -d"):match "[^\n]+", helper.file(source)
    cache = root .. "/a/b"
  end)
  after_each(function() shell("rm -r " .. root) end)

  local function check(name, fn) standin.it(name, fn, "libcublasLt.so.13") end

  check("is timed once, kept, and the same in the next run", function()
    local first, calls = run()
    assert.equal(3, calls.heuristic)
    local all = 0
    for i = 0, 3 do
      assert.truthy(calls["matmul " .. i] >= 2)
      all = all + calls["matmul " .. i]
    end
    assert.truthy(all <= 4 * (2 + 2 * 20) + 3 * 3, all) -- one is timed, for all three
    assert.same({first[1], first[1], first[1]}, first)
    local second, again = run()
    assert.same(first, second)
    assert.equal(nil, again.heuristic)
    assert.equal(3 * 3, again[again.last])
    local _, key = kept()
    assert.truthy(key:find("float32 to float32, m 52 n 52 k 52 batch 1", 1, true), key)
  end)

  check("is what the folder says, for as long as the library takes it", function()
    run()
    local path, key = kept()
    local digits = {}
    for i = 0, 3 do
      local low, high = 0x6c740000 + i, (1 << 32) - 1 - 0x6c740000 - i
      local bytes = string.pack("<I4I4I4I4", low, 0, high, 0xffffffff) .. ("\0"):rep(48)
      digits[i] = bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
    end
    local bits = {}
    for i = 0, 3 do
      write(path, ("%s\n%s\n"):format(key, digits[i]))
      local lines, calls = run()
      bits[lines[1]] = true
      assert.equal("matmul " .. i, calls.last)
      assert.equal(1, calls["check " .. i])
      assert.equal(nil, calls.heuristic)
    end
    assert.truthy(next(bits, next(bits)), "all algorithms give the same bits: the spec sees nothing")
    local zeros = ("0"):rep(128)
    for _, text in ipairs {"", key, key .. "\n" .. zeros .. "\n", "x" .. key .. "\n" .. digits[1] .. "\n"} do
      write(path, text)
      assert.equal(3, select(2, run()).heuristic)
      assert.equal(key, select(2, kept()))
    end
  end)

  check("is the library's first guess where nothing is kept, can be, or is asked for", function()
    for _, how in ipairs {{"off"}, {"/proc/nowhere"}, {cache, "MESHLUA_ALGORITHMS=first"}} do
      local _, calls = run(how[1], how[2])
      assert.equal(3, calls.heuristic)
      assert.equal("matmul 0", calls.last)
      for i = 1, 3 do assert.equal(nil, calls["matmul " .. i]) end
    end
    assert.equal("", (shell(("ls %s | grep product-"):format(cache))))
    local _, err, code = shell('MESHLUA_ALGORITHMS=fast "$MESHLUA" --devices=cuda -e ""')
    assert.truthy(err:find("MESHLUA_ALGORITHMS=fast: expected some of first | tf32 | wgmma", 1, true), err)
    assert.equal(2, code)
  end)

  check("is one for what its addresses are, and said where there is none, at each call", function()
    program = helper.file(elsewhere)
    local lines, calls = run("off")
    assert.same({"1378.0", "1326.0", "1378.0"}, lines)
    assert.same({2, 3}, {calls.heuristic, calls["matmul 3"]})
    for more, pattern in pairs {
      ["STANDIN_CUBLASLT_ALIGNED=1"] = ":5: %[E_DEVICE%] matmul: cublasLt has no algorithm for NVIDIA "
        .. "H200 of .*: float32 to float32, m 52 n 52 k 52 batch 1, aligned 4, ",
      ["STANDIN_CUBLASLT_FAIL=create"] = ":5: %[E_DEVICE%] matmul: cublasLtCreate: a failure",
      ["STANDIN_CUBLASLT_FAIL=matmul"] = ":5: %[E_DEVICE%] matmul: cublasLtMatmul: a failure %(NVIDIA H200 ",
    } do
      lines = run("off", more)
      assert.matches(pattern, lines[1])
      assert.equal(lines[1], lines[3])
      if more:find "ALIGNED" then assert.equal("1326.0", lines[2]) end
    end
  end)

  check("is another one with tf32, whose digits are fewer", function()
    local exact, calls = run("off")
    local rounded = run("off", "MESHLUA_ALGORITHMS=tf32")
    assert.equal("matmul 0", calls.last)
    local x, y = tonumber(exact[1]:match "%S+"), tonumber(rounded[1]:match "%S+")
    assert.truthy(x ~= y and math.abs(x - y) < 1e-3 * math.abs(x), ("%g, %g"):format(x, y))
  end)

  check("is one for all processes that begin at the same time", function()
    local logs, command = {}, {}
    for i = 1, 3 do
      logs[i] = os.tmpname()
      command[i] = ([[(MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s STANDIN_CUBLASLT_LOG=%s "$MESHLUA" \
        --devices=cuda %s | sort -u | md5sum) &]]):format(cache, folder, logs[i], program)
    end
    local sums = {}
    for sum in shell(table.concat(command, "\n") .. "\nwait"):gmatch "%x+" do sums[sum] = true end
    assert.truthy(next(sums))
    assert.equal(nil, next(sums, next(sums)))
    for _, log in ipairs(logs) do os.remove(log) end
  end)
end)
