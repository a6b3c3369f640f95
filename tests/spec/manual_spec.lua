-- manual_spec.lua: the manual page and what shells complete: they can be read, and have what the program has.
local helper = require "spec.helper"
local verbs = require "meshlua.program.verbs"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function read(name)
  local handle <close> = assert(io.open("docs/" .. name))
  return handle:read "a"
end

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

--- Is the program there? What is asked of a shell that is not is not asked.
local function has(program) return output("command -v " .. program) ~= "" end

--- What bash completes of words, the last one under way.
local function completed(...)
  local words = {...}
  for i, word in ipairs(words) do words[i] = quote(word) end
  local script = [[. docs/completions/meshlua.bash; compopt() { :; }; COMP_WORDS=(%s); COMP_CWORD=%d
    _meshlua; printf '%%s\n' "${COMPREPLY[@]}"]]
  local text = output("bash -c " .. quote(script:format(table.concat(words, " "), #words - 1)))
  local list = {}
  for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

describe("the manual page", function()
  local text = read "meshlua.1"

  it("has every verb, flag, exit code and variable of the program", function()
    local plain = text:gsub("\\%-", "-")
    local function there(word) assert.truthy(plain:find("\n.B " .. word .. "\n", 1, true), word) end
    for _, row in ipairs(verbs.verbs) do
      there((row[1] .. " " .. row[2]):match "^(.-) ?$")
      for _, flag in ipairs(row.flags or {}) do there(verbs.written(flag)) end
    end
    for _, row in ipairs(verbs.flags) do there(verbs.written(row)) end
    for _, row in ipairs(verbs.exits) do there(row[1]) end
  end)

  it("can be set by those who set such pages", function()
    if has "groff" then assert.equal("", output "groff -man -ww -Tutf8 docs/meshlua.1 2>&1 >/dev/null") end
    if has "mandoc" then assert.equal("", output "mandoc -T lint -W error docs/meshlua.1") end
  end)

  it("shows commands that work", function()
    local n = 0
    for command in text:gmatch "\n%.EX\n(.-)\n%.EE" do
      command = command:gsub("\\%-", "-"):gsub("\\e", "\\")
      local folder = os.tmpname()
      os.remove(folder)
      local script = ('set -e; p=$(realpath %s); mkdir %s; cd %s; "$p"%s; cd /; rm -r %s'):format(
        quote(helper.program()), folder, folder, command:gsub("^meshlua", ""), folder)
      assert.is_true(os.execute("(" .. script .. ") > /dev/null"), command)
      n = n + 1
    end
    assert.is_true(n >= 4)
  end)
end)

describe("completion", function()
  it("is a script of each shell", function()
    for shell, file in pairs {bash = "meshlua.bash", zsh = "_meshlua", fish = "meshlua.fish"} do
      if has(shell) then assert.equal("", output(("%s -n docs/completions/%s 2>&1"):format(shell, file))) end
    end
  end)

  it("knows verbs, flags, their values, files and what help knows", function()
    for _, case in ipairs {
      {{"train"}, "meshlua", "tr"}, {{"--devices="}, "meshlua", "--dev"},
      {{"fake:8", "fake:h100:8", "fake:h200:8"}, "meshlua", "--devices", "=", "fa"},
      {{"doctor", "docs"}, "meshlua", "--devices", "=", "8", "doc"},
      {{"models/gpt.lua"}, "meshlua", "train", "models/gp"},
      {{"--resume="}, "meshlua", "train", "models/gpt.lua", "--re"},
      {{"warn"}, "meshlua", "train", "models/gpt.lua", "--save-failure", "=", "w"},
      {{"--encoding="}, "meshlua", "convert", "--enc"}, {{"matmul"}, "meshlua", "help", "matm"},
    } do assert.same(case[1], completed(table.unpack(case, 2))) end
  end)

  it("of fish knows the same", function()
    if not has "fish" then return end
    local function words(line)
      local text = output("fish -c " .. quote("source docs/completions/meshlua.fish; complete -C "
        .. quote(line)))
      return (text:gsub("\t[^\n]*", ""):gsub("\n$", ""))
    end
    assert.equal("train", words "meshlua tr")
    assert.equal("--resume", words "meshlua train models/gpt.lua --re")
    assert.equal("matmul", words "meshlua help matm")
  end)
end)
