-- C and CUDA are written as .clang-format says. Only version 14 is asked: others wrap some lines otherwise.
local gate = require "gate"

local VERSION = 14

local version = gate.output("clang-format --version 2>/dev/null")[1] or "none"
if tonumber(version:match "version (%d+)") ~= VERSION then
  gate.skip(("clang-format %d is not here (found: %s)"):format(VERSION, version))
end

local files = {}
for _, file in ipairs(gate.files "%.[ch]u?h?$") do
  if file:find "^host/" or file:find "^kernels/" or file:find "^tests/" or file:find "^bench/" then
    files[#files + 1] = file
  end
end
local found = io.popen("clang-format --dry-run " .. table.concat(files, " ") .. " 2>&1")
for line in found:lines() do
  local place = line:match "^(.-:%d+):%d+: warning: "
  if place then gate.fail(place, "not as .clang-format says") end
end
if not found:close() then gate.fail("clang-format", "it failed") end
gate.finish(#files, "run clang-format -i FILE, and read what it made.")
