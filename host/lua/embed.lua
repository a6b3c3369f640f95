-- embed.lua: at build time: files of the Lua library as bytecode, with their lines and names. Arguments: for each
-- its path, its name in messages, and where the bytecode goes.
for i = 1, #arg, 3 do
  local file <close> = assert(io.open(arg[i], "rb"))
  local chunk, message = load(file:read "a", "=" .. arg[i + 1], "t")
  if not chunk then
    io.stderr:write(arg[i], ": ", message, "\n")
    os.exit(1)
  end
  local out = assert(io.open(arg[i + 2], "wb"))
  assert(out:write(string.dump(chunk)))
  assert(out:close()) -- a full disk may say so only here
end
