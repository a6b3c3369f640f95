-- devices: fake:h200:1
-- What fused regions of train steps become on a GPU, byte for byte, and that NVRTC compiles it. A change of the
-- generator on purpose says so by new golden files (tests/golden/device.lua).
local helper = require "spec.helper"
local ml = require "meshlua"
local device = require "golden.device"

local known, kernels = {}, {}

--- In the order of the golden files, each of which has what is new in its program.
local function kernels_of(name)
  for _, earlier in ipairs(device.order) do
    kernels[earlier] = kernels[earlier] or device.kernels(earlier, known)
    if earlier == name then return kernels[name] end
  end
end

--- Skips where there is no library for GPUs, or no compiler for them.
local function needed(value, message)
  if value then return value end
  local why = tostring(message)
  if why:find("meshlua_cuda", 1, true) or why:find("is missing", 1, true) then helper.pending(why) end
  error(message, 0)
end

for _, name in ipairs(device.order) do
  describe("the fused kernels of a train step: " .. name, function()
    it("are as written", function()
      local ok, got = pcall(kernels_of, name)
      got = device.text(needed(ok and got, got))
      local handle <close> = assert(io.open(device.golden(name)))
      local line, expected = 0, handle:lines()
      for now in (got .. "\n"):gmatch "([^\n]*)\n" do
        local wanted = expected() or ""
        line = line + 1
        if wanted ~= now then
          error(("%s:%d: expected\n  %s\ngot\n  %s"):format(device.golden(name), line, wanted, now), 0)
        end
      end
      assert.is_nil(expected(), "more lines than expected")
    end)

    for _, major in ipairs {8, 9} do
      it("compile for sm_" .. major .. "0", function()
        if helper.watched then helper.pending "NVRTC is not looked into by sanitizers" end
        local ok, list = pcall(kernels_of, name)
        needed(ml.core.compile_device(device.joined(needed(ok and list, list)), major, 0))
      end)
    end
  end)
end
