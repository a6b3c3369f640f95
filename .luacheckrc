std = "lua54"
max_line_length = 110
max_comment_line_length = 160 -- LuaCATS types
exclude_files = {"docs/types"} -- for editors: never run
self = false -- a method need not use its self
ignore = {
  "211/.*context", "211/.*restore", "211/.*guard", -- held for their __close
  "581", -- not (x <= y) is not x > y where y is not a number
}

files["tests/**/*_spec.lua"] = {std = "+busted"}
files["tests/spec/helper.lua"] = {std = "+busted"}
files["tests/fuzz"] = {std = "+busted"}
