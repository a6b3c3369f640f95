-- screen.lua: the program in a terminal of its own (tmux): keys go in, the screen comes out. Nothing waits for a fixed
-- time: a key that takes a block is followed by the next prompt, and a screen is looked at until it is as wanted.
local helper = require "spec.helper"
local core = require "meshlua.core"

local M = {}

local PATIENCE = rawget(_G, "BLESS") and 20 or 60 -- seconds; the machine may be busy

---@class Screen
---@field folder string its home, its socket
---@field number integer of the prompt that was seen last
local Screen = {}
Screen.__index = Screen

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Is there a terminal to be had?
function M.is_there() return os.execute "command -v tmux >/dev/null 2>&1" == true end

local function write(name, text)
  local file <close> = assert(io.open(name, "wb"))
  file:write(text)
end

--- What a command writes.
local function output(command)
  local pipe <close> = assert(io.popen(command, "r"))
  return pipe:read "a"
end

--- Starts the program. When it ends, the screen says how, and Enter starts it again.
---@param options {width: integer?, height: integer?, flags: string?, env: string?}
---@return Screen
function M.new(options)
  local folder = os.tmpname()
  os.remove(folder)
  assert(os.execute("mkdir -p " .. quote(folder .. "/home")))
  local self = setmetatable({folder = folder, number = 0}, Screen)
  write(folder .. "/conf", "set -g status off\nset -g default-terminal screen\nset -sg escape-time 0\n"
    .. "set -g history-limit 50000\n")
  local here = output("pwd"):gsub("\n", "")
  local program = helper.program()
  if program:sub(1, 1) ~= "/" then program = here .. "/" .. program end
  write(folder .. "/run", ("cd %s; while :; do env %s %s %s; echo \"ended $?\"; read -r _; done\n"):format(
    quote(here), options.env or "", quote(program), options.flags or "--devices=8"))
  -- libedit does not free the names of keys' functions
  local environment = "env -u TMUX -u NO_COLOR -u EDITOR -u VISUAL ASAN_OPTIONS=detect_leaks=0 "
    .. "LC_ALL=C.UTF-8 HOME=" .. quote(folder .. "/home")
  assert(os.execute(("%s tmux -S %s/socket -f %s/conf new-session -d -x %d -y %d sh %s/run"):format(
    environment, folder, folder, options.width or 80, options.height or 24, folder)))
  return self
end

function Screen:tmux(command) return output(("tmux -S %s/socket %s 2>&1"):format(self.folder, command)) end

--- Ends it, and what it left.
function Screen:close()
  self:tmux "kill-server"
  os.execute("rm -rf " .. quote(self.folder))
end
Screen.__close = Screen.close

--- What stands on the screen: its lines, less what is empty at the end.
---@param colour boolean? with its escapes
---@return string
function Screen:text(colour)
  return (self:tmux("capture-pane -p" .. (colour and "e" or "")):gsub("[ \t]+\n", "\n"):gsub("%s+$", ""))
end

--- Looks until a test holds; false where it never does.
---@param holds fun(): boolean?
function Screen:wait(holds)
  local from = core.clock()
  while not holds() do
    if core.clock() - from > PATIENCE then return false end
    core.sleep(0.02)
  end
  return true
end

--- Waits for a prompt that nothing stands behind: the one of the next block, or behind one that was given up.
function Screen:prompt()
  return self:wait(function()
    local row, text = self:tmux("display-message -p '#{cursor_y}' \\; capture-pane -p"):match "^(%d+)\n(.*)$"
    local lines = {}
    for line in (text or ""):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
    local at = row and tonumber(row) + 1 or 0
    local number = tonumber((lines[at] or ""):match "^(%d+)> *$")
    if not number or number <= self.number and not (lines[at - 1] or ""):find "%^C$" then return false end
    self.number = number
    return true
  end)
end

--- What is on the screen, and where the cursor stands.
function Screen:place()
  return self:tmux "display-message -p '#{cursor_x} #{cursor_y}' \\; capture-pane -p"
end

function Screen:shows(text) return self:wait(function() return self:text():find(text, 1, true) end) end

--- Pastes, between marks where the program has asked for them, or as if it were typed.
---@param text string
---@param typed boolean?
function Screen:paste(text, typed)
  write(self.folder .. "/paste", text)
  self:tmux(("load-buffer %s/paste \\; paste-buffer %s"):format(self.folder, typed and "" or "-p -r"))
end

--- Presses keys: text, and names in <>: <Enter> waits for the next prompt, <NL> is an Enter and <Break> a Ctrl-C
--- that does not, <Restart> an Enter for a program that has ended.
---@param keys string
---@return boolean did prompts come?
function Screen:keys(keys)
  local ok = true
  local names = {NL = "Enter", Restart = "Enter", Break = "C-c"}
  for text, name in keys:gmatch "([^<]*)<?([^>]*)>?" do
    if name == "lt" then text, name = text .. "<", "" end
    if name == "Restart" then self.number = 0 end
    if text ~= "" then self:tmux("send-keys -l -- " .. quote(text)) end
    if name == "NL" then -- keys that come at once are taken for a paste, and not indented
      ok = self:shows(text:sub(-2)) and ok
    end
    local before = self:place()
    if name ~= "" then self:tmux("send-keys " .. quote(names[name] or name)) end
    if name == "NL" then ok = self:wait(function() return self:place() ~= before end) and ok end
    if name == "Enter" or name == "C-c" or name == "Restart" then ok = self:prompt() and ok end
  end
  return ok
end

return M
