-- doctor.lua: what the program finds on this machine.
local core = require "meshlua.core"
local program = require "meshlua.program"

local M = {}

local function thousands(n) return ("%d.%d"):format(n // 1000, n % 1000 // 10) end

--- Libraries that are used when they are there, newest names first. `version`: a function of the library
--- that gives a number, `number` turns it into a text. Those that are `heavy` are found, not loaded.
local libraries = {
  {what = "CUDA driver", names = {"libcuda.so.1"}, version = "cuDriverGetVersion", number = thousands},
  {what = "CUDA runtime", names = {"libcudart.so.13", "libcudart.so.12"}, version = "cudaRuntimeGetVersion",
    number = thousands},
  {what = "cuBLASLt", names = {"libcublasLt.so.13", "libcublasLt.so.12"}, heavy = true},
  {what = "NVRTC", names = {"libnvrtc.so.13", "libnvrtc.so.12"}, heavy = true},
  {what = "cuDNN", names = {"libcudnn.so.9"}, heavy = true},
  {what = "NCCL", names = {"libnccl.so.2"}, heavy = true},
  {what = "MPI", names = {"libmpi.so.40", "libmpi.so.12"}, heavy = true},
  {what = "libsodium", names = {"libsodium.so.23"}},
}

--- The loader's list of libraries: name -> file.
local function loader_cache()
  local files = {}
  local pipe = io.popen "/sbin/ldconfig -p 2>/dev/null"
  if not pipe then return files end
  for line in pipe:lines() do
    local name, file = line:match "^%s+(%S+) .* => (%S+)$"
    if name and not files[name] then files[name] = file end
  end
  pipe:close()
  return files
end

local function find_library(library, cache)
  for _, name in ipairs(library.names) do
    local file, version
    if library.heavy then file = cache[name] and program.real_path(cache[name]) end
    if not file then file, version = program.library(name, library.version) end
    if file then return version and library.number(version) .. ", " .. file or file end
  end
  return "not found (" .. table.concat(library.names, ", ") .. ")"
end

--- The GPUs that --devices=cuda would use, or what it would say.
local function add_gpus(rows)
  local gpus, why = core.gpus()
  if not gpus then
    rows[#rows + 1] = {"GPUs", why}
    return
  end
  for i, gpu in ipairs(gpus) do
    local text = ("%s, %s, compute capability %d.%d, at %s; driver for CUDA %s, runtime %s"):format(
      gpu.name, core.bytes_text(gpu.memory), gpu.major, gpu.minor, gpu.bus, thousands(gpu.driver),
      thousands(gpu.runtime))
    rows[#rows + 1] = {"GPU " .. i - 1, text}
  end
end

--- What was found, as rows of a label and a text.
---@return string[][]
function M.rows()
  local here = core.doctor()
  local blas = here.blas == "none" and "none: large float64 products are slow (Debian: libopenblas0-pthread)"
    or ("%s, core %s"):format(here.blas, here.blas_core)
  local rows = {
    {"meshlua", program.version},
    {"Lua", program.lua:match "%S+$"},
    {"kernels", here.kernels},
    {"threads", tostring(here.threads)},
    {"BLAS", blas},
    {"devices", tostring(here.devices)},
    {"processes", here.processes},
  }
  local cache = loader_cache()
  for _, library in ipairs(libraries) do rows[#rows + 1] = {library.what, find_library(library, cache)} end
  add_gpus(rows)
  return rows
end

return M
