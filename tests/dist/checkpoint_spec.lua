-- checkpoint_spec.lua: checkpoints of several processes: what each reads, folders that are not shared, processes that
-- do not come.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell = helper.shell
local is_whole = require("meshlua.checkpoint.check").checkpoint
local within = helper.within

--- Runs the text as a script in two processes of two devices, with this argument.
local function two(code, argument)
  return shell(("%s %s %s"):format(mpi.program(2, 2), helper.file(code, ".lua"), argument))
end

local HEAD = [[
  local ml = require "meshlua"
  local core, P = ml.core, ml.P
  local rank, folder = ml.process_index(), arg[1]
  local mesh = ml.make_mesh({4}, {"x"})
  local function tree(spec, value)
    local t = ml.device_put(ml.full({1024, 1024}, value), ml.NamedSharding(mesh, spec))
    return {model = {w = core.box_new(t, {kind = "param"})}}
  end
]]

describe("a checkpoint of two processes", function()
  mpi.it("is read by each in its part", function()
    within(function(folder)
      local out, err, code = two(HEAD .. [[
        local manager = assert(ml.checkpoint.Manager(folder))
        assert(manager:save(1, tree(P "x", 3.0)))
        assert(manager:wait())
        for _, spec in ipairs {P "x", P(nil, "x"), P()} do
          local t, before = tree(spec, 0.0), core.catalog_bytes()
          assert(manager:restore(t))
          local read = (core.catalog_bytes() - before) / (4 << 20)
          for process = 0, 1 do
            local sharding = ml.NamedSharding(mesh, P "x")
            local mine = ml.make_array_from_process_local_data(sharding, ml.full({2}, read))
            mine = ml.all_gather_to_host(mine):totable()
            if rank == 0 then print(mine[1 + 2 * process]) end
          end
          assert(t.model.w:get():min():item() == 3.0)
        end
        assert(manager:close())
      ]], folder)
      assert.equal(0, code, err)
      local read = {}
      for word in out:gmatch "%S+" do read[#read + 1] = tonumber(word) end
      for process = 1, 2 do
        assert.truthy(math.abs(read[process] - 0.5) <= 0.025, out)
        assert.truthy(read[2 + process] <= 0.625, out)
        assert.truthy(read[4 + process] <= 1.05, out)
      end
      assert.truthy(is_whole(folder .. "/step-00000001"))
    end)
  end)

  mpi.it("needs a folder that both see", function()
    within(function(folder)
      local _, err, code = two(HEAD .. [[
        assert(ml.checkpoint.Manager(folder .. "/" .. rank))
      ]], folder)
      assert.truthy(code ~= 0)
      assert.truthy(err:find("process 1", 1, true), err)
      assert.truthy(err:find("does not see what process 0 writes there", 1, true), err)
      assert.truthy(err:find(folder, 1, true), err)
    end)
  end)

  mpi.it("is made at the same step in both, where time decides", function()
    within(function(folder)
      local out, err, code = two(HEAD .. [[
        local manager = assert(ml.checkpoint.Manager(folder, {every_minutes = 0.3 / 60, keep = 9}))
        local t, saved = tree(P "x", 1.0), {}
        local step = ml.jit(function(w) return w:sum() end, {mesh = mesh})
        for i = 1, 40 do
          step(t.model.w):item()
          core.sleep(0.03)
          if assert(manager:save(i, t) ~= nil) and manager.begun == i then saved[#saved + 1] = i end
        end
        assert(manager:wait())
        local wanted = table.concat(manager:steps(), " ")
        if rank == 0 then print(#saved > 0 and table.concat(saved, " ") == wanted) end
        manager:close()
      ]], folder)
      assert.same({0, "true\n"}, {code, out}, err)
    end)
  end)

  mpi.it("is given up, and said so, where a part does not come", function()
    within(function(folder)
      local out, err, code = two(HEAD .. [[
        local manager = assert(ml.checkpoint.Manager(folder, {timeout = 1}))
        local t = tree(P "x", 1.0)
        if rank == 0 then
          assert(manager:save(1, t))
          print((select(2, manager:wait())))
        end
        core.take_save()
        ml.all_gather_to_host(t.model.w:get() + 1)
        if rank == 0 then print(#manager:steps()) end
        assert(manager:save(2, t))
        local ok, message = manager:wait()
        assert(ok, message)
        if rank == 0 then print(#manager:steps()) end
        manager:close()
      ]], folder)
      assert.equal(0, code, err)
      local said = "step%-00000001: the part of process 1 is missing after 1 seconds; the checkpoint is "
        .. "given up"
      assert.truthy(out:find(said .. "\n0\n1\n"), out)
    end)
  end)
end)
