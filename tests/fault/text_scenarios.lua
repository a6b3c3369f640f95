-- text_scenarios.lua: uses of tokenizers; the others are in scenarios.lua.
local helper = require "spec.helper"
local ml = require "meshlua"

local core = ml.core

local M = {}

local function add(name, scenario)
  scenario.name = name
  M[#M + 1] = scenario
end

add("texts into ids, and back", {
  run = function()
    local fields = {pieces = {"a", "b", "ab", "<s>", false, "?"}, hidden = {[3] = true, [5] = true},
      characters = true, split = {{pattern = "[ab?]+|z"}}, unknown_ids = {5}, added = {{3, special = true}}}
    fields.merges = {0, 1, 2}
    local t = assert(core.tokenizer(fields))
    fields.merges, fields.ranks, fields.split = nil, {1, 2, 3, 4, 5, 6}, {}
    local u = assert(core.tokenizer(fields))
    local ids, places = t:encode("ab<s>zb", "token", {3}, nil, true)
    return {ids, places, t:encode_batch({"ab", "aab"}, "text"), t:pack("abab", "text", nil, {3}, 2),
      t:decode(ids, true), u:encode(("ab"):rep(3000), "text"), t:id "ab", u:merges(), t:is_local "text"}
  end,
  check = function(_, r)
    assert(table.concat(r[1], " ") == "3 2 3 5 1" and r[2][3][2] == 5 and r[3][2][2] == 2)
    assert(r[4] == "\2\0\2\0\3\0" and r[5] == "<s>ab<s>?b" and #r[6] == 3000 and #r[8] == 2)
  end,
})

add("a vocabulary learnt", {
  run = function()
    local learner, order = assert(core.learner {split = {{kind = "digits"}}}), {}
    for byte = 0, 255 do order[byte + 1] = byte end
    assert(learner:add "banana1bandana")
    return {learner:merges(order, 258), learner:is_local()}
  end,
  check = function(_, r) assert(table.concat(r[1], " ", 1, 3) == "97 110 256") end,
})

add("tokenizers from files", {
  make = function()
    return {to = helper.file("", ".json"), from = helper.file([[{"added_tokens": [], "normalizer": null,
      "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never"},
      "model": {"vocab": {"a": 0, "\u2581": 1, "\u2581a": 2}, "merges": ["\u2581 a"]}}]], ".json")}
  end,
  run = function(s)
    local t = assert(ml.tokenizer(s.from))
    assert(t:save(s.to))
    local learnt = assert(ml.learn_tokenizer("aa", {size = 257, special = {}}))
    return {t:encode "a a", learnt:encode "aaa"}
  end,
  check = function(_, r) assert(table.concat(r[1], " ") == "0 2" and #r[2] == 2) end,
})

return M
