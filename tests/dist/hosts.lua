-- hosts.lua: two hosts on this machine, as network namespaces; a spec gets it by `require "dist.hosts"`.
local assert = require "luassert"
local shell = require "spec.helper".shell

local M = {SCRIPT = "tests/dist/scripts/hosts.sh "}

-- What runs beside this has other names.
local unique = os.tmpname()
--- What the hosts are called: with 1 and 2 behind it.
M.NAME = "ml" .. unique:match "%w%w%w%w$"
os.remove(unique)

--- Makes them.
function M.up()
  local _, err, code = shell(M.SCRIPT .. "up " .. M.NAME)
  assert.equal(0, code, err)
end

--- Ends what runs on them, and removes them.
function M.down() shell(M.SCRIPT .. "down " .. M.NAME) end

local _, _, code = shell(M.SCRIPT .. "up " .. M.NAME .. " && " .. M.SCRIPT .. "down " .. M.NAME)
--- Why there can be no second host here, or nil.
M.why = code ~= 0 and "namespaces need root and ip (Debian: iproute2)" or nil

return M
