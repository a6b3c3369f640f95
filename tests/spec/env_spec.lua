-- env_spec.lua: every environment variable of `--env` with values that it cannot have: an error that names it,
-- the value and what it may be, before anything runs.
local helper = require "spec.helper"
local core = require "meshlua.core"
local shell, file = helper.shell, helper.file

--- Values that no variable of a kind can have, and the words of the message; `code`: 3 where the machine lacks
--- it. What a kind is not named in is free text.
local function cases_of(row)
  local range = {row.value:match "^(%d+)%.%.(%d*)$"}
  if range[1] or row.value:find "^seconds" or row.value == "number" or row.value == "0, 1" then
    local list = {"abc", "-1", "1e3", "1.5", "+2", " 2", "2x", "0x2", "99999999999999999999"}
    if range[1] == "1" or row.value:find "^seconds" then list[#list + 1] = "0" end
    if row.value == "0, 1" then list[#list + 1] = "2" end
    if range[2] and range[2] ~= "" then list[#list + 1] = tostring(math.tointeger(range[2]) + 1) end
    return list, "expected a whole number from "
  end
  if row.value:find "^[%l%d]+ |" and not row.value:find "%u" then
    local first = row.value:match "^%l+"
    local some = row.name == "MESHLUA_ALGORITHMS"
    return {"fats", some and "first,fats" or "default naive", "0", first .. "x", first:upper()},
      (some and "expected some of " or "expected one of ") .. row.value
  end
end

--- Further ones, for each variable by itself.
local more = {
  MESHLUA_DEVICES = {{"x", 2, "--devices=x: expected"}, {"0", 2, "--devices=0: expected"}},
  MESHLUA_BLAS = {{"/nonexistent/lib.so", 3, "MESHLUA_BLAS=/nonexistent/lib.so: No such file or directory; "
    .. "it may be off"}, {"libnothing.so", 3, "MESHLUA_BLAS=libnothing.so: libnothing.so: cannot open"},
    {"/etc/passwd", 3, "MESHLUA_BLAS=/etc/passwd: /etc/passwd: "},
    {"libz.so.1", 3, "has no cblas_sgemm and cblas_dgemm"}},
  MESHLUA_CACHE = {{"/etc/passwd", 3, "MESHLUA_CACHE=/etc/passwd: Not a directory; it may be off | FOLDER"},
    {"/dev/null/below", 3, "MESHLUA_CACHE=/dev/null/below: Not a directory"}},
  MESHLUA_PATH = {{"/lib", 2, "MESHLUA_PATH=/lib: expected templates in which ? stands for the module"}},
}

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function refused(name, value, code, wanted)
  local setting = name .. "=" .. quoted(value)
  local out, err, actual = shell(setting .. [[ "$MESHLUA" -e "print(1)"]])
  assert.same({"", code}, {out, actual}, setting .. "\n" .. err)
  assert.truthy(err:find(wanted, 1, true), setting .. "\n" .. err)
  assert.truthy(err:find(name, 1, true), setting .. "\n" .. err)
  assert.equal(1, select(2, err:gsub("\n", "")), err)
end

describe("environment variables", function()
  for _, row in ipairs(core.env()) do
    local values, wanted = cases_of(row)
    local ours = row.name:find "^MESHLUA_"
    local launchers = not ours or row.name:find "RANK$" or row.name:find "WORLD" or row.name:find "MASTER"
    if values then
      it(row.name .. " refuses what it cannot be", function()
        for i = 1, helper.watched and 2 or #values do
          local value = values[i]
          -- What says the ranks in part is refused for that, where it is not for its value.
          local text = launchers and row.name or ("%s=%s: %s"):format(row.name, value, wanted)
          refused(row.name, value, launchers and 3 or 2, text)
        end
      end)
    elseif more[row.name] then
      it(row.name .. " refuses what it cannot be", function()
        for _, case in ipairs(more[row.name]) do refused(row.name, table.unpack(case)) end
      end)
    else
      local free = {PMIX_NAMESPACE = true, CUDA_VISIBLE_DEVICES = true, NO_COLOR = true, TERM = true,
        HOME = true, XDG_CACHE_HOME = true, LUA_INIT = true, LUA_INIT_5_4 = true, SLURM_STEP_NODELIST = true,
        MASTER_ADDR = true, MESHLUA_SECRET = true, TMPDIR = true, VISUAL = true, EDITOR = true}
      it(row.name .. " is free text", function() assert.truthy(free[row.name]) end)
    end
  end

  it("take what they can be", function()
    local folder = os.tmpname() .. "/below"
    for _, setting in ipairs {"MESHLUA_THREADS=1", "MESHLUA_THREADS=1024", "MESHLUA_LOG=0", "MESHLUA_LOG=4",
        "MESHLUA_CHECK=0", "MESHLUA_CHECK=1", "MESHLUA_KERNELS=naive", "MESHLUA_BLAS=off", "MESHLUA_THREADS=",
        "MESHLUA_CACHE=off", "MESHLUA_CACHE=" .. folder:gsub("/lua_", "/none_"), "MESHLUA_PATH='/x/?.lua;;'",
        "MESHLUA_TIMEOUT=1", "MESHLUA_ALGORITHMS=first", "MESHLUA_ALGORITHMS=tf32,first",
        "MESHLUA_DEVICES=2"} do
      local out, err, code = shell(setting .. [[ "$MESHLUA" -e "print(1)"]])
      assert.same({"1\n", 0}, {out, code}, setting .. "\n" .. err)
    end
    os.remove(folder:match "^(.*)/below")
  end)

  it("are looked at by name, too", function()
    local _, err, code = shell [[MESHLUA_TREADS=2 MESHLUA_X=1 MESHLUA_BENCH_X=x "$MESHLUA" -e ""]]
    assert.equal(0, code)
    local lines = {}
    for line in err:gmatch "[^\n]+" do lines[#lines + 1] = line end
    table.sort(lines)
    assert.same({"meshlua: warning: there is no variable MESHLUA_TREADS; did you mean MESHLUA_THREADS? (--"
      .. "env lists them)", "meshlua: warning: there is no variable MESHLUA_X (--env lists them)"}, lines)
  end)

  it("are checked for a stock lua, too", function()
    local module = helper.program():match "^(.*)/[^/]*$" .. "/?.so"
    local command = [[MESHLUA_LOG=9 LUA_CPATH='%s' lua5.4 -e "print(pcall(require, 'meshlua'))"]]
    local out = shell(command:format(module))
    if out == "" then helper.pending "no stock lua5.4 loads this build" end
    assert.truthy(out:find("[E_VALUE] MESHLUA_LOG=9: expected a whole number from 0 to 4", 1, true), out)
  end)

  it("are listed, whatever they are", function()
    local out, _, code = shell [[MESHLUA_LOG=9 MESHLUA_THREADS=abc "$MESHLUA" --env]]
    assert.equal(0, code)
    assert.truthy(out:find "\nMESHLUA_LOG +0%.%.4 +9 ")
    assert.equal(0, select(3, shell [[MESHLUA_LOG=9 "$MESHLUA" --help]]))
  end)
end)

describe("flags", function()
  it("with values that they cannot have name them", function()
    for flag, value in pairs {["--timeout"] = "abc", ["--devices"] = "x", ["--dump"] = "plan:",
        ["--master-port"] = "0", ["--log-ranks"] = "x", ["--rank"] = "x", ["--world-size"] = "0",
        ["--local-rank"] = "-1"} do
      local rest = flag:find "rank" and flag ~= "--log-ranks" and " --world-size=2" or ""
      if rest ~= "" then rest = rest .. (flag == "--rank" and " --local-rank=0" or " --rank=0") end
      if flag == "--world-size" then rest = " --rank=0 --local-rank=0" end
      local _, err, code = shell(('"$MESHLUA" %s=%s%s %s'):format(flag, value, rest, file ""))
      assert.equal(2, code, err)
      assert.truthy(err:find(flag .. "=" .. value, 1, true), err)
    end
  end)
end)
