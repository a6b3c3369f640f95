-- docs_spec.lua: what the documents show is what happens. Every block of Lua runs, in a folder of its document's
-- own, and prints what the document says:
--
--   ```lua       a program, in the file that its first line names ("-- meshlua --devices=8 NAME.lua", as it is
--                started; else --devices=8). One that does not require meshlua goes on with the program before it.
--     --> text   is a line of its output, in the order of the page
--   ```text      the whole output of the block before it
--   ```console   "$ command", and what it writes; it finds models/, tests/, docs/ and the programs
--                before it
--
-- "..." stands for any text. After a change, blocks of text without it are written anew (read the difference before
-- committing it) by:
--   build/meshlua -e BLESS=1 tests/specs.lua tests/spec/docs_spec.lua
local helper = require "spec.helper"

local documents = {}
do
  local list <close> = assert(io.popen "ls *.md docs/*.md bench/*.md")
  for file in list:lines() do documents[#documents + 1] = file end
end

--- The fenced blocks of a file: {kind, text, at (line)}.
local function blocks_of(file)
  local blocks, block, at = {}, nil, 0
  for line in io.lines(file) do
    at = at + 1
    local kind = line:match "^%s*```(.*)$"
    if kind and block then
      block.text = table.concat(block, "\n")
      blocks[#blocks + 1], block = block, nil
    elseif kind then
      block = {kind = kind, at = at}
    elseif block then
      block[#block + 1] = line
    end
  end
  assert(not block, file .. ": a block has no end")
  return blocks
end

--- Blocks of Lua that are one program, each with the text that it shows; {first, last, name, flags}.
local function programs_of(blocks)
  local programs = {}
  for i, block in ipairs(blocks) do
    local after = blocks[i + 1]
    if block.kind == "lua" then
      block.shows = after and after.kind == "text" and after.text or nil
      if block.text:find 'require "meshlua"' then
        local flags, name = block.text:match "^%-%- [%w/]*meshlua ([^\n]-) ?([%w_]+%.lua)[^\n]*\n"
        flags, name = flags or "--devices=8", name or "example.lua"
        programs[#programs + 1] = {at = block.at, flags = flags, name = name}
      end
      table.insert(assert(programs[#programs], "the first program does not require meshlua"), block)
    end
  end
  return programs
end

--- One space between words, none at the ends of lines.
local function plain(text)
  return (text:gsub("[ \t]+", " "):gsub(" \n", "\n"):gsub("^%s+", ""):gsub("%s+$", ""))
end

--- A pattern for what is shown.
local function pattern(text) return (plain(text):gsub("%p", "%%%0"):gsub("%%%.%%%.%%%.", ".-")) end

local function assert_shows(wanted, out)
  assert.truthy(plain(out):find("^" .. pattern(wanted) .. "$"), "expected\n" .. wanted .. "\ngot\n" .. out)
end

--- Puts what a program writes in the place of what is shown, unless parts of it are left out.
local function bless(file, shown, out)
  if shown:find("...", 1, true) then return end
  local function block(content) return "```text\n" .. content .. (content == "" and "" or "\n") .. "```" end
  local handle <close> = assert(io.open(file))
  local text = handle:read "a"
  local first, last = text:find(block(shown), 1, true)
  local written <close> = assert(io.open(file, "w"))
  written:write(text:sub(1, first - 1), block((out:gsub("%s+$", ""))), text:sub(last + 1))
end

--- The lines behind "-->" are lines of the output, in their order.
local function assert_lines(block, out)
  local at = 1
  out = "\n" .. plain(out) .. "\n"
  for wanted in block.text:gmatch "%-%->([^\n]*)" do
    local _, last = out:find("\n" .. pattern(wanted) .. "%f[\n]", at)
    assert.truthy(last, ("line %d: no line '%s' in\n%s"):format(block.at, plain(wanted), out))
    at = last
  end
end

--- Runs a shell command in the folder of a document, where models and tests are found.
local function shell(folder, command)
  return helper.shell(([[case $MESHLUA in /*) ;; *) MESHLUA=$PWD/$MESHLUA ;; esac
    ln -sfn "$PWD/models" "$PWD/tests" "$PWD/docs" %s
    cd %s && PATH=$(dirname "$MESHLUA"):$PATH && %s]]):format(folder, folder, command))
end

local MARK = "\1" -- between what blocks of one program write

local function run(file, folder, program)
  local texts = {}
  for i, block in ipairs(program) do texts[i] = block.text end
  local handle <close> = assert(io.open(folder .. "/" .. program.name, "wb"))
  handle:write(table.concat(texts, ("\nio.write '%s' "):format(MARK)))
  handle:close()
  local out, err, code = shell(folder, ("meshlua %s %s"):format(program.flags, program.name))
  assert.same({"", 0}, {err, code})
  local i = 0
  for part in (out .. MARK):gmatch("(.-)" .. MARK) do
    i = i + 1
    local block = program[i]
    if block.shows and rawget(_G, "BLESS") then bless(file, block.shows, part) end
    if block.shows and not rawget(_G, "BLESS") then assert_shows(block.shows, part) end
    assert_lines(block, part)
  end
  assert.equal(#program, i)
end

local function run_session(folder, session)
  for command, wanted in (session.text .. "\n$ "):gmatch "%$ ([^\n]*)\n(.-)%f[$\0]" do
    local out = shell(folder, "{ " .. command:gsub("^build/", "") .. "; } 2>&1")
    assert_shows(wanted, out)
  end
end

local looked = 0
for _, file in ipairs(documents) do
  local blocks = blocks_of(file)
  local programs = programs_of(blocks)
  looked = looked + #programs
  describe(file, function()
    local folder
    setup(function()
      folder = os.tmpname()
      os.remove(folder)
      assert(os.execute("mkdir " .. folder))
    end)
    teardown(function() os.execute("rm -r " .. folder) end)

    for _, program in ipairs(programs) do
      it("has a program that does what is said: line " .. program.at, function()
        run(file, folder, program)
      end)
    end
    for i, block in ipairs(blocks) do
      if block.kind == "console" then
        it("has a session that goes so: line " .. block.at, function() run_session(folder, block) end)
      elseif block.kind == "text" then
        it("shows what a program before it writes: line " .. block.at, function()
          assert.equal("lua", i > 1 and blocks[i - 1].kind)
        end)
      elseif block.kind ~= "lua" and block.kind ~= "sh" and block.kind ~= "" then
        error(("%s:%d: ```%s is no kind of block"):format(file, block.at, block.kind))
      end
    end
  end)
end
assert(looked > 0, "no document has a program")
