-- missing_spec.lua: what keeps a script from its GPU is one line, the same from a run and from the doctor; on GPUs
-- that the stand-ins play (standin/device.cpp).
local helper = require "spec.helper"
local standin = require "cuda.standin"
local shell, folder, check = helper.shell, standin.folder, standin.it

--- Runs the program with these variables and arguments.
local function run(variables, arguments)
  return shell(('MESHLUA_CACHE=off LD_LIBRARY_PATH=%s %s "$MESHLUA" %s'):format(folder, variables, arguments))
end

describe("a GPU", function()
  local version = standin.has() and run("", "doctor"):match "runtime ([%d.]+)\n" -- of the toolkit here

  local function says(variables, line)
    local _, err, code = run(variables, "--devices=cuda -e ''")
    assert.equal(("meshlua: [E_DEVICE] --devices=cuda: %s\n"):format(line), err)
    assert.equal(3, code)
    local out = run(variables, "doctor")
    assert.truthy(out:find("\nGPUs +%-%-devices=cuda: " .. line:gsub("%p", "%%%0") .. "\n"), out)
  end

  check("needs a driver, one that is new enough", function()
    says("STANDIN_DRIVER=0",
      "no CUDA device: there is no NVIDIA driver (libcuda.so.1), which the CUDA runtime " .. version
      .. " needs")
    says("STANDIN_DRIVER=11080", "no CUDA device: the NVIDIA driver is too old: it is for CUDA 11.8, and the "
      .. "runtime is " .. version .. "; a newer driver or an older toolkit is needed")
  end)

  check("is used by the runtime that its driver is for, where there are several", function()
    local several = shell("mktemp -d"):match "[^\n]+"
    for major = 12, 13 do
      shell(("cp %s/libcudart.so.13 %s/libcudart.so.%d"):format(folder, several, major))
    end
    local say = 'MESHLUA_CACHE=off LD_LIBRARY_PATH=%s STANDIN_DRIVER=%d080 "$MESHLUA" doctor'
    for major = 12, 13 do
      local out = shell(say:format(several, major))
      assert.truthy(out:find(("driver for CUDA %d%%.8, runtime %d%%."):format(major, major)), out)
    end
    shell("rm -r " .. several)
  end)

  check("is there, shown, and of the kind that is used", function()
    says("STANDIN_GPUS=0", "no CUDA device: no CUDA-capable device is detected (CUDA error 100; driver for "
      .. ("CUDA %s, runtime %s)"):format(version, version))
    says("STANDIN_GPUS=0 CUDA_VISIBLE_DEVICES=7", "no CUDA device: CUDA_VISIBLE_DEVICES=7 shows none")
    says("STANDIN_CAPABILITY=75",
      "GPU 0 (NVIDIA H200) has compute capability 7.5; 8.0 or later is needed")
    local _, err, code = run("CUDA_VISIBLE_DEVICES=2,3 STANDIN_GPUS=2", "--devices=cuda:5 -e ''")
    assert.equal("meshlua: [E_DEVICE] --devices=cuda: there is no GPU 5: CUDA shows 2, from 0 "
      .. "(CUDA_VISIBLE_DEVICES=2,3)\n", err)
    assert.equal(3, code)
  end)

  check("is one of up to sixteen", function()
    local say = [[--devices=%s -e 'print(require("meshlua").device_count())']]
    for devices, count in pairs {["cuda"] = 3, ["cuda:1"] = 1, ["cuda:2,0"] = 2, ["'cuda:2,0*4'"] = 8} do
      assert.same({count .. "\n", "", 0}, {run("STANDIN_GPUS=3", say:format(devices))})
    end
    local out, err, code = run("STANDIN_GPUS=17", say:format "cuda")
    assert.same({"", "meshlua: [E_DEVICE] --devices=cuda: 17 GPUs, and one process uses 16 at most; say "
      .. "which: --devices=cuda:0,1\n", 3}, {out, err, code})
  end)

  check("is of a kind whose speeds are known by its whole name", function()
    local say = [[--devices=cuda -e 'print(require("meshlua.core").device_peak "bfloat16")']]
    for name, peak in pairs {["NVIDIA H200"] = "9.894e+14", ["NVIDIA H100 80GB HBM3"] = "9.894e+14"} do
      assert.same({peak .. "\n", "", 0}, {run(("STANDIN_NAME='%s'"):format(name), say)})
    end
    for _, name in ipairs {"NVIDIA GH200 480GB", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"} do
      local note = ("the speeds of %s are not known: plans are made for those of an H100"):format(name)
      assert.same({"nil\n", "meshlua: " .. note .. "\n", 0}, {run(("STANDIN_NAME='%s'"):format(name), say)})
    end
  end)

  check("has room for what a process needs of it", function()
    local _, err, code = run("STANDIN_FAIL=1", "--devices=cuda -e ''")
    assert.equal("meshlua: [E_DEVICE] --devices=cuda: cudaHostAlloc: out of memory (CUDA error 2)\n", err)
    assert.equal(3, code)
  end)

  check("is in the doctor's list", function()
    local out = run("STANDIN_GPUS=2 STANDIN_CAPABILITY=80 STANDIN_MEMORY=1610612736", "doctor")
    for i = 0, 1 do
      assert.truthy(out:find(("\nGPU %d +NVIDIA H200, 1.50 GiB, compute capability 8%%.0, at [%%x:.]+; "
        .. "driver for CUDA [%%d.]+, runtime [%%d.]+\n"):format(i)), out)
    end
  end)

  check("needs the runtime, and NVRTC for what was not compiled before", function()
    local broken = shell("mktemp -d"):match "[^\n]+"
    local say = ('LD_LIBRARY_PATH=%s "$MESHLUA" --devices=cuda -e %s'):format(broken,
      "'local ml = require [[meshlua]] print(ml.exp(ml.arange(4.0)))'")
    local function library(name) shell(("for n in 12 13; do : > %s/%s.so.$n; done"):format(broken, name)) end
    library "libnvrtc"
    shell(("cp %s/libcudart.so.13 %s"):format(folder, broken))
    local _, err, code = shell(("MESHLUA_CACHE=%s/kept %s"):format(broken, say))
    assert.truthy(err:find("[E_DEVICE]", 1, true), err)
    assert.truthy(err:find("NVRTC is missing: ", 1, true), err)
    assert.equal(3, code)
    shell(('MESHLUA_CACHE=%s/kept LD_LIBRARY_PATH=%s "$MESHLUA" --devices=cuda -e %s'):format(broken, folder,
      "'local ml = require [[meshlua]] print(ml.exp(ml.arange(4.0)))'"))
    assert.truthy(shell(("MESHLUA_CACHE=%s/kept %s"):format(broken, say)):find "20.08")
    -- What has a library's name and not its functions is of another version.
    for name, row in pairs {libnvrtc = {"NVRTC", "exp(x)"}, libcublasLt = {"cublasLt", "matmul(x, x)"}} do
      shell(("cp %s/*.so.* %s; cc -shared -x c /dev/null -o %s/%s.so.13"):format(folder, broken, broken,
        name))
      local words = ("'local ml = require [[meshlua]] local x = ml.ones {64, 64} ml.%s'"):format(row[2])
      local start = 'MESHLUA_CACHE=%s/none LD_LIBRARY_PATH=%s "$MESHLUA" --devices=cuda -e %s'
      _, err, code = shell(start:format(broken, broken, words))
      assert.matches(("%s %%(%s%%.so%%.1%%d%%) is too old: it has no %%a+\n"):format(row[1], name), err)
      assert.equal(3, code)
    end
    shell(("cp %s %s/meshlua"):format(helper.program(), broken)) -- without its library for GPUs
    _, err, code = shell(broken .. "/meshlua --devices=cuda -e ''")
    assert.matches("^meshlua: %[E_DEVICE%] %-%-devices=cuda: .*meshlua_cuda.so.*; build meshlua where the "
      .. "CUDA toolkit is, or use %-%-devices=N for CPU devices\n$", err)
    assert.equal(3, code)
    library "libcudart"
    _, err, code = shell(say)
    assert.truthy(err:find("meshlua: [E_DEVICE] --devices=cuda: the CUDA runtime is missing: ", 1, true), err)
    assert.equal(3, code)
    shell("rm -r " .. broken)
  end)
end)
