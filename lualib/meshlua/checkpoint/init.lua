-- init.lua: the module ml.checkpoint: what a run saves, and goes on from.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local manager = require "meshlua.checkpoint.manager"

lib.hold(lib.export_checked(manager.methods, "Manager:"), "Manager:")
local M = lib.export_checked({Manager = manager.Manager}, "checkpoint.")
lib.strict(M, "checkpoint", "checkpoint.")

-- Elsewhere a function of this name computes again what gradients need; here that is another word.
getmetatable(M).__call = core.wrap(function(...) -- luacheck: ignore 212
  lib.raise("E_VALUE", "ml.checkpoint is a module, of what is saved; ml.remat(fn, {policy = ...}) is fn, "
    .. "whose inside gradients compute again")
end)

return M
