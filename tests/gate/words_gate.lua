-- Words that the tree has given up stay out of it, in names of files and in what files say: a thing has one word, and
-- ARCHITECTURE.md ("Words") says which.
local gate = require "gate"

--- The word as names and identifiers have it, a pattern, and what is said instead.
local retired = {
  {"/ring%.[ch]%f[%W]", "flight_log"},
  {"%f[%w_]Ring%u", "FlightLog"},
  {"%f[%w_]standing[_.]", "status (of a rank)"},
  {"%f[%w_]Standing", "RankStatus"},
  {"/meet%.[ch]%f[%W]", "rendezvous"},
  {"%f[%w_]link_transfer", "transport_transfer"},
  {"/link%.[ch]%f[%W]", "transport"},
  {"%f[%w_]gpus_%l", "gpu_transport"},
  {"%f[%w_]shortage", "memory_check"},
  {"%f[%w_]comm_local", "collective (within a domain), reduce"},
  {"%f[%w_]Crossing", "Exchange"},
  {"%f[%w_]Stretch", "Segment"},
  {"%f[%w_]cuda/plan%.", "launches"},
  {"%f[%w_]cuda_plan", "launches"},
  {"%f[%w_]lua/l%l+%.[ch]", "the same name without an l"},
  {"%f[%w_]jit_%l+%.c%f[%W]", "jit/NAME.c"},
  {"%f[%w_]op/control%.[ch]", "op/marker"},
  {"%f[%w_]op/source%.[ch]", "op/create"},
  {"%f[%w_]op/join%.[ch]", "op/pad_concat"},
  {"%f[%w_]ir/print%.", "ir/graph_print"},
  {"%f[%w_]ir/parse%.c", "ir/graph_parse"},
  {"%f[%w_]checkpointed", "remat"},
  {"PartialKind", "ReduceKind"},
  {"partial_kind", "unreduced_kind"},
  {"pending sum", "unreduced"},
  {"OPF_JOINS", "OPF_COMBINES (several steps of one kernel are one launch)"},
  {"CudaMerge", "CudaPair (two kernels are one launch)"},
  {"Device%.merge", "Device.pair"},
  {"%f[%w_]k_join", "k_superinstr"},
  {"%f[%w_]join_modes", "vary_like"},
  {"pass_join", "pass_sum_products"},
  {"SWITCH_JOIN", "SWITCH_SUM_PRODUCTS"},
  {"comm/comm%.c", "comm/reassociate.c"},
  {"OPF_SOURCE", "OPF_NULLARY"},
  {"%f[%w_]layout_bind", "layout_from_spec"},
}

local looked = 0
for _, file in ipairs(gate.files()) do
  local text = gate.read(file)
  if file ~= "tests/gate/words_gate.lua" and not text:find "\0" then
    looked = looked + 1
    for _, word in ipairs(retired) do
      local pattern, instead = word[1], word[2]
      if file:find(pattern) then gate.fail(file, "a retired name: %s", instead) end
      local plain = pattern:gsub("%%f%b[]", ""):match "^/?[%w_/]+" -- which is found faster
      local at = text:find(plain, 1, true) and text:find(pattern)
      if at then
        local _, line = text:sub(1, at):gsub("\n", "")
        local place = ("%s:%d"):format(file, line + 1)
        gate.fail(place, "'%s' is retired; say %s", text:match(pattern, at), instead)
      end
    end
  end
end
gate.finish(looked, [[say what stands beside the word in tests/gate/words_gate.lua.]])
