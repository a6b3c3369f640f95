-- sessions_spec.lua: recorded sessions: keys in, screen out. sessions/NAME.txt has what it shows in its first line, then
-- `size 60x20`, `flags`, `env` or `colour` where it is not 80x24 with --devices=8, then the steps:
--
--   > text<Enter>   keys, by their names in tmux; <Enter> waits for the next prompt, <NL> does not, <lt> is "<"
--   | text          a line of what <Paste> pastes; \x1b is a byte
--   ? text          waits until the screen has the text
--   ! command       of the shell, in the home folder
--
-- and behind a line of "=" the screen. "..." in it stands for any text of a line, alone for any lines. Screens are written anew (read the
-- difference before committing it) by: build/meshlua -e BLESS=1 tests/specs.lua tests/repl/sessions_spec.lua
local screens = require "repl.screen"
local helper = require "spec.helper"

local bless = rawget(_G, "BLESS")

local function read(file)
  local handle <close> = assert(io.open(file, "rb"))
  return handle:read "a"
end

--- A file's head, steps and screen.
local function parse(text)
  local head, screen = text:match "^(.-\n)=+\n(.*)$"
  assert(head, "no line of =")
  local session = {head = head, screen = screen:gsub("%s+$", ""), steps = {}}
  for line in head:gmatch "([^\n]+)\n" do
    local word, rest = line:match "^(%S+) ?(.*)$"
    if word == "size" then session.width, session.height = rest:match "^(%d+)x(%d+)$" end
    if word == "flags" or word == "env" then session[word] = rest end
    if word == "colour" then session.colour = true end
    if #word == 1 and word ~= "#" then session.steps[#session.steps + 1] = {word, rest} end
  end
  return session
end

--- A pattern for the screen, as it is wanted.
local function pattern(screen)
  local text = ("\n" .. screen:gsub("%p", "%%%0") .. "\n"):gsub("\n%%%.%%%.%%%.\n", "\n.-\n")
  return "^" .. text:gsub("%%%.%%%.%%%.", "[^\n]*"):sub(2, -2) .. "$"
end

local pasted

local does = {
  [">"] = function(on, text)
    for part, paste in text:gmatch "(.-)(<Paste>)" do
      on:keys(part)
      on:paste(table.concat(pasted, "\n"))
      pasted, text = {}, text:gsub("^.-" .. paste, "")
    end
    assert.truthy(on:keys(text), "no prompt after " .. text .. "\n" .. on:text())
  end,
  ["|"] = function(_, text)
    pasted[#pasted + 1] = text:gsub("\\x(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  end,
  ["?"] = function(on, text) assert.truthy(on:shows(text), "no " .. text .. "\n" .. on:text()) end,
  ["!"] = function(on, text) assert(os.execute(("cd %s/home && %s"):format(on.folder, text))) end,
}

local function run(session)
  local on <close> = screens.new(session)
  pasted = {}
  assert.truthy(on:prompt(), "no prompt\n" .. on:text())
  for _, step in ipairs(session.steps) do does[step[1]](on, step[2]) end
  local wanted = pattern(session.screen)
  if bless then
    local before
    on:wait(function()
      local text = on:text(session.colour)
      local same = text == before
      before = text
      if not same then os.execute "sleep 0.5" end
      return same
    end)
    return on:text(session.colour)
  end
  on:wait(function() return on:text(session.colour):find(wanted) end)
  return on:text(session.colour)
end

describe("a session", function()
  local list <close> = assert(io.popen "ls tests/repl/sessions/*.txt")
  for file in list:lines() do
    local session = parse(read(file))
    it(file:match "([^/]+)%.txt$" .. ": " .. session.head:match "^#? ?([^\n]*)", function()
      if not screens.is_there() then return helper.pending "tmux is missing" end
      local text = run(session)
      if bless and not text:find(pattern(session.screen)) then
        local handle <close> = assert(io.open(file, "wb"))
        handle:write(session.head, ("="):rep(20), "\n", text, "\n")
      elseif not text:find(pattern(session.screen)) then
        assert.equal(session.screen, text)
      end
    end)
  end
end)

describe("the program of the README", function()
  local page = read "README.md"
  local program, shown = page:match "```lua\n(.-)```\n\n```text\n(.-)\n```"

  for _, typed in ipairs {false, true} do
    it(typed and "is typed line by line" or "is pasted whole", function()
      if not screens.is_there() then return helper.pending "tmux is missing" end
      local on <close> = screens.new {width = 100, height = 50}
      assert.truthy(on:prompt())
      on:paste(program, typed)
      for line in shown:gmatch "[^\n]+" do
        line = line:gsub("\t", (" "):rep(8 - #line:match "^[^\t]*" % 8))
        assert.truthy(on:shows(line), line .. "\n" .. on:text())
      end
      assert.truthy(on:prompt(), on:text())
      assert.truthy(on:keys "#rules, step:stats()<Enter>") -- its locals are at hand
      assert.truthy(on:shows "3       49      1", on:text())
    end)
  end
end)
