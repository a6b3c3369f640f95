-- Numbers become text, and text numbers, with a decimal point in every locale: in C through base/plain.h.
local gate = require "gate"

-- What may call the C library's own: plain.c itself, and what is a library of its own and sees no base.
local apart = {["host/base/plain.c"] = true, ["kernels/cuda/text.c"] = true}
-- These format integers and texts alone.
local integers = {["kernels/cuda/launches.c"] = true, ["host/cuda/gpu.c"] = true}

--- The names of functions that read or set a locale, or read a number by it.
local readers = {"strtod", "strtof", "strtold", "atof", "sscanf", "fscanf", "localeconv"}
local list_printers = {"vsnprintf", "vsprintf", "vfprintf", "vprintf", "vdprintf"}
local printers = {"snprintf", "sprintf", "fprintf", "printf", "dprintf", "lua_pushfstring", "luaL_error"}

--- Does the text call that function?
local function calls(text, name) return text:find("%f[%w_]" .. name .. "%s*%(") end

--- Does a call of that function format a float?
local function prints_float(text, name)
  for call in text:gmatch("%f[%w_]" .. name .. "%s*(%b())") do
    for literal in call:gmatch '"[^"\n]*"' do
      local spec = literal:gsub("%%%%", ""):match "%%[-+ #%d.*]*[lL]?[aAeEfFgG]"
      if spec then return spec end
    end
  end
end

local looked = 0
for _, file in ipairs(gate.files "%.[ch]$") do
  if (file:find "^host/" or file:find "^kernels/") and not apart[file] then
    looked = looked + 1
    local text = gate.read(file)
    for _, name in ipairs(readers) do
      if calls(text, name) then gate.fail(file, "it calls %s", name) end
    end
    for _, name in ipairs(list_printers) do
      if calls(text, name) and not integers[file] then gate.fail(file, "it calls %s", name) end
    end
    for _, name in ipairs(printers) do
      local spec = prints_float(text, name)
      if spec then gate.fail(file, "it gives %s to %s", spec, name) end
    end
    for _, name in ipairs {"text_put", "text_item", "launches_fail", "cuda_define"} do -- of libraries of their own
      local spec = prints_float(text, name)
      if spec then gate.fail(file, "it gives %s to %s", spec, name) end
    end
  end
end
for _, file in ipairs(gate.files "^lualib/.*%.lua$") do
  looked = looked + 1
  for call in gate.read(file):gmatch "%f[%w_.]raise%s*(%b())" do -- its arguments become text by themselves
    if call:gsub("nearest%(tostring", ""):find "%f[%w_]tostring%(" then
      gate.fail(file, "it gives tostring(...) to raise: %s", call:sub(1, 60))
    end
  end
end
gate.finish(looked, [[floats are printed by str_fmt, str_double, err_set or plain_format, read by plain_read,
and put into device code by text_number; in lualib, what makes texts goes through core.plain or lib.format;
raise does so, and lib.text is tostring.]])
