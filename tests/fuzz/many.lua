-- many.lua: random programs by the thousand, in processes of their own, so that one that aborts ends no other:
--   meshlua --devices=8 tests/fuzz/many.lua nested 50000 [first seed]
-- The kinds: auto, explicit, mixed, nested, nested_explicit, nested_mixed (programs.lua), manual (manual.lua), meshes
-- (meshes.lua), loops (loops.lua). It prints the seeds that fail, and how far it is: who stops it goes on with the seed it came to.
local folder = arg[0]:match "^(.*)many%.lua$"
local kinds = {manual = "manual", meshes = "meshes", loops = "loops"}
for kind in ("auto explicit mixed nested nested_explicit nested_mixed"):gmatch "%S+" do
  kinds[kind] = "programs"
end
local CHUNK = 200

local function program()
  local i = 0
  while arg[i - 1] do i = i - 1 end
  return arg[i]
end

local kind, count = arg[1], math.tointeger(tonumber(arg[2] or 1000))
local first = math.tointeger(tonumber(arg[3] or 1))
if not kinds[kind] or not count or not first then
  io.stderr:write("many.lua: KIND COUNT [SEED]; the kinds stand at the top of this file\n")
  os.exit(2)
end

--- Runs n seeds from `seed` on. Returns how many failed, nil where the process was ended, and its output.
local function run(seed, n)
  local mode = kinds[kind] == "programs" and kind or ""
  local file = folder .. kinds[kind] .. ".lua"
  local command = ("'%s' --devices=8 '%s' %d %d %s 2>&1"):format(program(), file, n, seed, mode)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  local ok, how, code = pipe:close()
  if ok then return 0, text end
  return how == "exit" and code == 1 and tonumber(text:match "(%d+) failures") or nil, text
end

io.stdout:setvbuf "line"
local failed, stop = {}, first + count
for seed = first, stop - 1, CHUNK do
  local n = math.min(CHUNK, stop - seed)
  if run(seed, n) ~= 0 then
    for one = seed, seed + n - 1 do
      local bad, text = run(one, 1)
      if bad ~= 0 then
        failed[#failed + 1] = one
        print(("seed %d %s:\n%s"):format(one, bad and "fails" or "ends its process", text))
      end
    end
  end
  if (seed - first) // CHUNK % 25 == 24 or seed + n == stop then
    print(("%d of %d programs, next seed %d, %d failures: %s"):format(seed + n - first, count, seed + n,
      #failed, table.concat(failed, " ")))
  end
end
os.exit(#failed == 0 and 0 or 1)
