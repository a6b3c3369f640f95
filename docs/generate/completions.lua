-- completions.lua: what shells complete, from the rows of verbs and flags: bash, zsh, fish.
local core = require "meshlua.core"
local exports = require "meshlua.exports"
local verbs = require "meshlua.program.verbs"

local M = {}

local MADE = "# Made by docs/generate.lua.\n"

--- "--devices=", "--ops".
local function flag_word(row) return (verbs.written(row):gsub("=.*", "=")) end

local function each(list, fn)
  local made = {}
  for _, entry in ipairs(list or {}) do
    local text = fn(entry)
    if text then made[#made + 1] = text end
  end
  return made
end

local function joined(...)
  return table.concat(table.move(..., 1, #..., 1, {}), " ")
end

--- The values that a flag can have, where they are words.
local function values_of(row)
  if row[1] == "dump" then return core.stages() end
  if row[1] == "devices" then return {"1", "2", "4", "8", "cuda", "fake:8", "fake:h100:8", "fake:h200:8"} end
  return row.words
end

--- All words that help knows.
local function topics()
  local list, seen = {}, {}
  local function add(word)
    if not seen[word] then list[#list + 1], seen[word] = word, true end
  end
  for _, row in ipairs(verbs.verbs) do add(row[1]) end
  for _, row in ipairs(verbs.codes) do add(row[1]) end
  for _, name in ipairs(exports.names()) do add(name) end
  table.sort(list)
  return list
end

--- Does the verb take files?
local function takes_files(row) return row[2] ~= "" and row[1] ~= "help" end

-- ---- bash -------------------------------------------------------------------------------------------

local BASH = [=[
_meshlua() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flag= verb= i
  if [[ $cur == = ]]; then flag=$prev cur=
  elif [[ $prev == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}; fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      -*|=) ;;
      *) [[ ${COMP_WORDS[i-1]} == = || ${COMP_WORDS[i-1]} == -[el] ]] || { verb=${COMP_WORDS[i]}; break; } ;;
    esac
  done
  local words=
  if [[ $flag ]]; then
    case $flag in
@VALUES@      *) compopt -o filenames; COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    return
  fi
  case $verb in
    "") words="@VERBS@ @FLAGS@" ;;
@OFVERBS@  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  [[ $cur == -* || $verb == help ]] || { compopt -o filenames; COMPREPLY+=($(compgen -f -- "$cur")); }
}
complete -F _meshlua meshlua
]=]

--- The file for bash.
---@return string
function M.bash()
  local values, of_verbs, seen = {}, {}, {}
  local function add_values(row)
    local words, flag = values_of(row), flag_word(row):gsub("=", "")
    if words and not seen[flag] then
      seen[flag] = true
      values[#values + 1] = ('      %s) words="%s" ;;\n'):format(flag, joined(words))
    end
  end
  for _, row in ipairs(verbs.flags) do add_values(row) end
  for _, row in ipairs(verbs.verbs) do
    for _, flag in ipairs(row.flags or {}) do add_values(flag) end
    local words = each(row.flags, flag_word)
    if row.starts then table.move(each(verbs.flags, flag_word), 1, #verbs.flags, #words + 1, words) end
    if row[1] == "help" then words = topics() end
    of_verbs[#of_verbs + 1] = ('    %s) words="%s" ;;\n'):format(row[1], joined(words))
  end
  local parts = {VALUES = table.concat(values), OFVERBS = table.concat(of_verbs),
    VERBS = joined(each(verbs.verbs, function(row) return row[1] end)),
    FLAGS = joined(each(verbs.flags, flag_word))}
  return MADE .. BASH:gsub("@(%u+)@", parts)
end

-- ---- zsh --------------------------------------------------------------------------------------------

--- Words as zsh's _arguments takes them, in quotes.
local function zsh_text(text)
  return (text:gsub("'", "'\\''"):gsub("([%[%]:])", "\\%1"))
end

local function zsh_flag(row)
  local word, words = flag_word(row), values_of(row)
  local action = ""
  if words then action = (":%s:(%s)"):format(row.value:lower(), zsh_text(joined(words)))
  elseif row.path then action = (":%s:_files"):format(row.value:lower())
  elseif word:find "=$" then action = (":%s: "):format(row.value:lower()) end
  return ("'%s[%s]%s'"):format(word, zsh_text(row[3]), action)
end

local ZSH = [=[
#compdef meshlua
@MADE@
_meshlua() {
  local context state line
  local -a flags
  flags=(
    @FLAGS@
  )
  _arguments -S $flags '-e[run the code]:code: ' '-l[require the library]:name: ' '-i[interactive]' \
    '-v[versions]' '1: :->first' '*:: :->rest'
  case $state in
    first)
      local -a verbs
      verbs=(
        @VERBS@
      )
      _describe verb verbs
      _files ;;
    rest)
      case $line[1] in
@OFVERBS@        *) _files ;;
      esac ;;
  esac
}
_meshlua "$@"
]=]

--- The file for zsh.
---@return string
function M.zsh()
  local of_verbs = {}
  for _, row in ipairs(verbs.verbs) do
    local parts = each(row.flags, zsh_flag)
    if row.starts then parts[#parts + 1] = "$flags" end
    if row[1] == "help" then parts = {("'1:word:(%s)'"):format(zsh_text(joined(topics())))}
    elseif takes_files(row) then parts[#parts + 1] = "'*:file:_files'" end
    if #parts > 0 then
      of_verbs[#of_verbs + 1] = ("        %s) _arguments -S \\\n          %s ;;\n"):format(row[1],
        table.concat(parts, " \\\n          "))
    end
  end
  local verb_words = each(verbs.verbs, function(row) return ("'%s:%s'"):format(row[1], zsh_text(row[3])) end)
  local parts = {MADE = MADE:sub(1, -2), FLAGS = table.concat(each(verbs.flags, zsh_flag), "\n    "),
    VERBS = table.concat(verb_words, "\n        "), OFVERBS = table.concat(of_verbs)}
  return (ZSH:gsub("@(%u+)@", parts))
end

-- ---- fish -------------------------------------------------------------------------------------------

local function fish_text(text) return "'" .. text:gsub("[\\']", "\\%0") .. "'" end

local function fish_flag(condition, row)
  local words, takes = values_of(row), row[2] ~= false
  local values = words and " -a " .. fish_text(joined(words)) or ""
  return ("complete -c meshlua -n %s -l %s%s%s -d %s"):format(condition, row[1]:gsub("_", "-"),
    takes and (row.path and " -r" or " -x") or "", values, fish_text(row[3]))
end

--- The file for fish.
---@return string
function M.fish()
  local names = joined(each(verbs.verbs, function(row) return row[1] end))
  local none = ("'not __fish_seen_subcommand_from %s'"):format(names)
  local lines = {}
  for _, row in ipairs(verbs.verbs) do
    lines[#lines + 1] = ("complete -c meshlua -n %s -a %s -d %s"):format(none, row[1], fish_text(row[3]))
  end
  for _, row in ipairs(verbs.flags) do lines[#lines + 1] = fish_flag(none, row) end
  for _, row in ipairs(verbs.verbs) do
    local seen = ("'__fish_seen_subcommand_from %s'"):format(row[1])
    for _, flag in ipairs(row.flags or {}) do lines[#lines + 1] = fish_flag(seen, flag) end
    for _, flag in ipairs(row.starts and verbs.flags or {}) do
      local own = each(row.flags, function(other) return other[1] == flag[1] or nil end)
      if #own == 0 then lines[#lines + 1] = fish_flag(seen, flag) end
    end
    if row[1] == "help" then
      lines[#lines + 1] = ("complete -c meshlua -f -n %s -a %s"):format(seen, fish_text(joined(topics())))
    end
  end
  return MADE .. table.concat(lines, "\n") .. "\n"
end

return M
