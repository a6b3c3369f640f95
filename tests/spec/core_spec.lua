-- core_spec.lua: what core says of this machine, and what of it scripts do not meet otherwise.
local helper = require "spec.helper"
local ml = require "meshlua"
local core = ml.core
local shell = helper.shell

--- What `print(code)` prints with these flags.
local function printed(flags, code)
  local out, err, status = shell(([["$MESHLUA" %s -e 'local core = require("meshlua").core; print(%s)']])
    :format(flags, code))
  assert.same({"", 0}, {err, status})
  return out
end

describe("on processors", function()
  it("nothing is known of GPUs", function()
    assert.is_nil(core.stamp())
    assert.is_nil(core.seconds_between(1, 2))
    assert.equal(1, select("#", core.seconds_between(1, 2)))
    assert.equal(0, core.gpu_count())
    for _, dtype in ipairs {"bfloat16", "float16", "float32"} do
      assert.same({n = 1}, table.pack(core.device_peak(dtype)))
    end
  end)

  it("devices stay what they are once there is a tensor", function()
    ml.zeros {1}
    helper.raises("[E_STATE] the devices cannot change after the first tensor or mesh", core.set_devices, "3")
  end)
end)

it("memory that is told to run out does so for Lua, too", function()
  core.fail_alloc(0)
  local ok, message = pcall(string.rep, "x", 1 << 20)
  core.fail_alloc(-1)
  assert.same({false, "not enough memory"}, {ok, message})
  assert.equal(1 << 20, #("x"):rep(1 << 20))
end)

describe("of a GPU that is only named", function()
  it("the datasheet's peak of 16-bit products is known", function()
    local peaks = printed("--devices=fake:h200:2",
      'core.device_peak "bfloat16", core.device_peak "float16", core.device_peak "float32"')
    local bf16, f16, f32 = peaks:match "^(%S+)\t(%S+)\t(%S+)\n$"
    assert.equal(bf16, f16)
    assert.truthy(tonumber(bf16) > 1e14, peaks)
    assert.equal("nil", f32)
  end)
end)

describe("the program", function()
  it("knows the kernels of each level", function()
    local code = ([[local p = require "meshlua.program"
      local naive, own, none = p.kernels "naive", p.kernels "default", p.kernels "v99"
      local n = 0
      for name, there in pairs(naive) do n = n + 1 assert(there == true and own[name] == true, name) end
      for name in pairs(own) do assert(naive[name], name) end
      print(n > 30, naive.matmul, naive.nothing, none)]]):gsub("\n%s*", " ")
    assert.same({"true\ttrue\tnil\tnil\n", "", 0}, {shell(([["$MESHLUA" -e '%s']]):format(code))})
  end)

  it("takes a number of processes, and nothing like one", function()
    for _, text in ipairs {"0", "-1", "+2", " 2", "2 ", "2x", "", "1e1", "0x2", "99999999", "12a9"} do
      local out, err, status = shell(([["$MESHLUA" --processes='%s' -e 'print(1)']]):format(text))
      assert.same({"", 2}, {out, status}, text)
      assert.truthy(err:find("--processes", 1, true), err)
    end
    -- Where a launcher is at work already, a count that is one is refused for that alone.
    for _, text in ipairs {"1", "9", "10", "19", "128"} do
      local out, err, status = shell(([[env OMPI_COMM_WORLD_SIZE=1 "$MESHLUA" --processes=%s -e 'print(1)']])
        :format(text))
      assert.same({"", 3}, {out, status}, text)
      assert.truthy(err:find("mpirun has started this process already", 1, true), err)
    end
  end)
end)
