-- raise.lua: a line editor whose keys raise errors, for sessions/raise.txt.
local core = require "meshlua.core"
local editor = require("meshlua.program").editor()

local on = {}

function on.enter() return {accept = true} end
function on.tab() return setmetatable({}, {__index = function() error "of an answer" end}) end
function on.up() error(setmetatable({}, {__tostring = function() error "of a text" end})) end
function on.down() core.fail_alloc(0) end
function on.paste() error "of a paste" end

print(editor:read("1> ", function(event) if on[event] then return on[event]() end end))
os.execute "stty -a | grep -ow -e -icanon -e icanon"
