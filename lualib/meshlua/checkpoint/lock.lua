-- lock.lua: who may write into a folder of checkpoints: one run at a time, whose lock dies with its process, and
-- whose processes all see the same folder. What is wrong is a result in all of them (nil, message, code).
local core = require "meshlua.core"
local together = require "meshlua.sharding.together"

local M = {}

local LOCK, NONCE = ".lock", ".nonce-"
local PATIENCE = 10 -- seconds until a file of another host must be seen
local LAST_BREATH = 2 -- seconds that a process which was killed may need to be gone

local function first_word(path)
  local file <close> = io.open(path, "r")
  return file and file:read "n" or file and file:read "l" or "?"
end

local function host() return tostring(first_word "/proc/sys/kernel/hostname") end

--- Removes what runs that are dead have begun in the folder: whoever has the lock is alone.
local function clean(folder)
  for _, name in ipairs(core.list_folder(folder) or {}) do
    if name:find "^%.step%-" or name:find "^%.gone%-" or name:sub(1, #NONCE) == NONCE then
      core.disk_task {{"remove", folder .. "/" .. name}}:wait()
    end
  end
end

--- What has a lock gives it up where it is closed, unless it is to keep it: whatever fails behind the lock.
local Holding = {__close = function(self)
  if self.lock and not self.keeps then self.lock:close() end
end}

--- Process 0's part. `holding` has the lock at once. Returns the lock (false: the disk knows none), or nil and a
--- message.
local function take(folder, say, holding)
  local ok, message = core.make_folder(folder)
  if not ok then return nil, message, "E_IO" end
  local till, text = core.clock() + LAST_BREATH, ("%s %d\n"):format(host(), first_word "/proc/self/stat")
  local lock, why, holder = core.lock(folder .. "/" .. LOCK, text)
  while holder and core.clock() < till do
    if holder == text then -- this process's own, which nobody may refer to any more
      till = 0
      collectgarbage()
    else
      core.sleep(0.05)
    end
    lock, why, holder = core.lock(folder .. "/" .. LOCK, text)
  end
  if lock == nil and not holder then
    os.remove(folder .. "/" .. LOCK) -- as it was: the folder goes, too, where nothing else is in it
    os.remove(folder)
    return nil, why, "E_IO"
  end
  if lock == nil then
    local name, pid = holder:match "(%S+) (%d+)"
    return nil, ("%s: another run writes here%s; take another folder, or wait for its end"):format(folder,
      name and (" (process %s on %s)"):format(pid, name) or ""), "E_STATE"
  end
  if type(lock) == "string" then
    say(("no lock can be had (%s): see to it that no other run writes here"):format(lock))
    return false
  end
  holding.lock = lock
  clean(folder)
  return lock
end

--- Does this process see the file that process 0 has made?
local function sees(path)
  local till = core.clock() + PATIENCE
  while not core.path_kind(path) do
    if core.clock() > till then return false end
    core.list_folder((path:gsub("/[^/]*$", ""))) -- a network disk looks again
    core.sleep(0.05)
  end
  return true
end

--- Takes the folder for the run of these processes. All must call it.
---@param folder string
---@param say fun(text: string) told what is worth a line
---@return {lock: userdata|false, nonce: string}? held, string? message, string? code
function M.take(folder, say)
  local lock, message, code, number = nil, nil, nil, 0
  local holding <close> = setmetatable({}, Holding)
  local is_first = core.process_index() == 0
  if is_first then
    lock, message, code = take(folder, say, holding)
    number = lock == nil and 0
      or 1 + tonumber(core.hash128(table.concat({host(), first_word "/proc/self/stat", os.time(),
        core.clock()}, " ")):sub(1, 7), 16)
  end
  number = together.largest(number)
  if number == 0 then
    return nil, message or folder .. ": process 0 cannot write checkpoints there", code or "E_IO"
  end
  local nonce = ("%07x"):format(number)
  local path = folder .. "/" .. NONCE .. nonce
  if core.process_count() > 1 then
    if is_first then core.disk_task {{"write", path, host() .. "\n"}}:wait() end
    together.largest(0) -- it is there
    local blind = together.largest(sees(path) and 0 or core.process_index() + 1)
    if is_first then core.disk_task {{"remove", path}}:wait() end
    if blind > 0 then
      local where = blind == core.process_index() + 1 and " on " .. host() or ""
      return nil, ("%s: process %d%s does not see what process 0 writes there; the checkpoints of several "
        .. "hosts need a folder that they share"):format(folder, blind - 1, where), "E_IO"
    end
  end
  local held = {lock = lock, nonce = nonce}
  holding.keeps = true
  return held
end

return M
