-- inspect_spec.lua: the verbs inspect and diff on runs: text, JSON, page, as they grow, and broken ones.
local core = require "meshlua.core"
local dkjson = require "dkjson"
local helper = require "spec.helper"
local json = require "meshlua.train.json"

local function write(path, text, mode)
  local file <close> = assert(io.open(path, mode or "wb"))
  file:write(text)
end

--- A folder with these files; config and rows are given as tables.
local function run_folder(config, rows, more)
  local name = helper.folder()
  assert(core.make_folder(name))
  if config then write(name .. "/config.json", dkjson.encode(config)) end
  local lines = {}
  for i, row in ipairs(rows or {}) do
    lines[i] = type(row) == "string" and row or dkjson.encode(row) .. "\n"
  end
  if rows then write(name .. "/metrics.jsonl", table.concat(lines)) end
  for file, text in pairs(more or {}) do write(name .. "/" .. file, text) end
  return name
end

local function config_of(more)
  local own = {steps = 100, lr = 0.003, width = 64}
  for key, value in pairs(more or {}) do own[key] = value end
  return {recipe = "gpt", mesh = "none", rules = "tp", seed = 3, data = "", config = own}
end

--- n rows whose losses fall, with an evaluation each tenth.
local function rows_of(n, change)
  local rows = {}
  for step = 1, n do
    rows[step] = {step = step, loss = 4 / step + (change and change(step) or 0), lr = 0.5 ^ (step / 10),
      ms = 3.5, validation_loss = step % 10 == 0 and 5 / step or nil}
  end
  return rows
end

local function ends(code, ...)
  local out, err, actual = helper.run {...}
  assert.equal(code, actual, out .. err)
  assert.falsy(err:find("traceback", 1, true), err)
  return out, err
end

--- Asserts that a text has all of these.
local function has(text, ...)
  for _, words in ipairs {...} do assert.truthy(text:find(words, 1, true), words .. " in:\n" .. text) end
end

describe("inspect of a run", function()
  it("says what it is, how far, curves, evaluations, notes, checkpoints", function()
    local rows = rows_of(42)
    rows[43] = {step = 43, event = "rollback", to = 40, why = "the loss is nan"}
    table.insert(rows, 21, {step = 21, event = "skip", loss = 9.5, lr = 0.25})
    local path = run_folder(config_of(), rows, {["guard.jsonl"] = '{"step":30,"batch":31,"what":"nan",'
      .. '"word":"rollback","loss":"nan","grad_norm":2.5,"to":20,"first_batch":21}\nx\n',
      ["samples.jsonl"] = '{"step":20,"sample":"a"}\nx\n{"step":40,"sample":"b\\n' .. ("ü"):rep(90)
        .. '"}\n'})
    local out = ends(0, "inspect", path .. "/")
    has(out, path .. ": recipe gpt, mesh none, rules tp, seed 3\nstep 42 of 100, stopped\n",
      "\nevaluations:\n", "\n    10              0.5\n", "\n  least validation_loss 0.125 at step 40\n",
      "\nnotes:\n  step 21: skip\n  step 30: nan, rollback, to 20, batch 31, loss nan, grad_norm 2.5\n"
      .. "  step 43: rollback why=the loss is nan\n")
    has(out, "\n2 samples, the last of step 40: b " .. ("ü"):rep(77) .. "...")
    assert.truthy(out:find "\nloss +0%.095238 +0%.095238 +42 +%S+\n", out)
    local o = dkjson.decode((ends(0, "inspect", path, "--json")))
    assert.same({"stopped", 42, 100, 42}, {o.state, o.step, o.steps, o.rows})
    assert.same({{step = 10, validation_loss = 0.5}, 4, 3}, {o.evaluations[1], #o.evaluations, #o.notes})
    assert.same({first = 4.0, count = 42, at = 42, step = 42}, {first = o.fields.loss.first,
      count = o.fields.loss.count, at = o.fields.loss.at, step = o.fields.loss.step})
    for step, point in ipairs(o.fields.loss.curve) do
      assert.equal(step, point[1])
      assert.near(4 / step, point[2], 1e-8)
    end
  end)

  it("takes steps that were taken again as the last time", function()
    local rows = rows_of(30)
    for step = 21, 25 do rows[#rows + 1] = {step = step, loss = 100 + step} end
    local o = dkjson.decode((ends(0, "inspect", run_folder(config_of(), rows), "--json")))
    assert.same({25, 25, 125, 25}, {o.step, o.rows, o.fields.loss.last, #o.fields.loss.curve})
    assert.same({2, 20}, {o.fields.validation_loss.count, o.fields.validation_loss.step})
  end)

  it("reads what is broken, cut, empty or not finite, and says so", function()
    local path = run_folder(config_of(), {})
    has(ends(0, "inspect", path), "no step yet of 100")
    has(ends(0, "inspect", run_folder(config_of())), "no step yet of 100")
    local rows = rows_of(3)
    for _, bad in ipairs {"", "x\n", "[1]\n", "5\n", '{"loss":1}\n', '{"step":-1}\n',
      '{"step":1.5,"loss":1}\n', '{"step":"1"}\n', ("{"):rep(5000) .. "\n",
      '{"step":9,"text":"' .. ("a"):rep(70000) .. '"}\n', "\0\xff\n",
      '{"step":4,"loss":null,"grad_norm":null}\n', '{"step":5,"lo'} do
      rows[#rows + 1] = bad
    end
    path = run_folder(config_of(), rows)
    local out = ends(0, "inspect", path)
    has(out, "step 4 of 100, stopped", "metrics.jsonl: 10 lines cannot be read; line 4: ",
      "metrics.jsonl: the last line is cut behind 13 bytes", "\nloss      nan   1.3333        3  ")
    ends(0, "inspect", path, "--json")
    path = run_folder(nil, rows_of(2), {["config.json"] = "{", ["result.json"] = "[1]"})
    out = ends(0, "inspect", path)
    has(out, path .. "\nstep 2, stopped\n", "config.json: ", "result.json: ")
    has(ends(0, "inspect", run_folder(nil, rows_of(2)) .. "/metrics.jsonl"), "step 2, so far", "loss ")
    local _, err = ends(3, "inspect", run_folder({model_type = "gpt2"}))
    assert.truthy(err:find("has no model.safetensors", 1, true), err)
    _, err = ends(3, "inspect", path, "/nonexistent")
    has(err, "/nonexistent: there is no run")
    _, err = ends(2, "inspect", "tests/oracle/disk/fortran.npy", "--follow")
    has(err, "no run: --follow is of such")
    ends(2, "inspect", path, path, "--follow")
    has(select(2, ends(2, "inspect")), "it needs PATH\n")
  end)

  -- More of them: meshlua -e "CASES=1000000 SEED=7" tests/specs.lua --filter=wrong tests/spec/train/inspect_spec.lua
  helper.figures("reads files that are made wrong, whatever is in them", function()
    local runs = require "meshlua.program.runs"
    local report, page = require "meshlua.program.run_report", require "meshlua.program.run_page"
    local several = require "meshlua.program.run_several"
    local state = rawget(_G, "SEED") or 1
    local function pick(n)
      state = (state * 1103515245 + 12345) % 2147483648
      return state // 65536 % n + 1
    end
    local rows = rows_of(12)
    rows[9] = {step = 9, event = "skip", loss = dkjson.null}
    local log = '{"step":3,"what":"nan","word":"skip"}\n'
    local path = run_folder(config_of(), rows, {["result.json"] = '{"seconds":1.5,"best":{"loss":2}}',
      ["guard.jsonl"] = log, ["samples.jsonl"] = '{"step":3,"sample":"so it is"}\n'})
    local texts, pieces = {}, {'"', "{", "}", "[", ",", ":", "\n", "null", "1e999", "-0",
      "9223372036854775808", '"step":', '"loss":', "\0", "\xff", "true", '"\\ud800"'}
    for _, name in ipairs {"metrics.jsonl", "config.json", "result.json", "guard.jsonl",
      "samples.jsonl"} do
      local file <close> = assert(io.open(path .. "/" .. name, "rb"))
      texts[#texts + 1] = {name, file:read "a"}
    end
    for i = 1, rawget(_G, "CASES") or 300 do
      local name, text = table.unpack(texts[pick(#texts)])
      for _ = 1, pick(3) do
        local at, n = pick(#text + 1), pick(4) == 1 and pick(40) or pick(2) - 1
        text = text:sub(1, at - 1) .. (pick(3) > 1 and pieces[pick(#pieces)] or "") .. text:sub(at + n)
      end
      write(path .. "/" .. name, text)
      local run = runs.open(path)
      if run then
        local done, fault = pcall(function()
          return #report.text(run) + #json.encode(report.object(run)) + #several.text {run, run}
            + (i % 8 == 0 and #page.text {run, run} or 0) + #several.differences(run, run).fields
        end)
        assert(done, ("%s of the %d-th case: %s\n%s"):format(name, i, tostring(fault), text))
      end
      if pick(3) == 1 then write(path .. "/" .. name, text:sub(1, -2)) end
    end
  end)

  it("--follow shows what comes, until the run ends", function()
    local path = run_folder(config_of(), rows_of(3))
    assert(core.make_folder(path .. "/checkpoints"))
    local out, err, code = helper.shell(([[run=%s
exec 9>>$run/checkpoints/.lock
flock 9
"$MESHLUA" inspect $run --follow >$run/out 9>&- & follow=$!
awaits() { for i in $(seq 300); do grep -q "$1" $run/out && break; sleep 0.02; done; }
awaits "step 3"
printf '{"step":4,"loss":0.5}\n{"step":5,"lo' >>$run/metrics.jsonl
awaits "step 4"
printf 'ss":0.25}\n' >>$run/metrics.jsonl
awaits "step 5"
exec 9>&-
(sleep 20; kill -KILL $follow) 2>/dev/null & watch=$!
wait $follow; code=$?
kill $watch 2>/dev/null
cat $run/out; exit $code]]):format(path))
    assert.equal(0, code, err)
    has(out, "step 3 of 100, running\n", "\nstep 4 of 100, running  loss 0.5\n",
      "\nstep 5 of 100, running  loss 0.25\n", "\nstep 5 of 100, stopped\n")
  end)

  it("several of them: how they differ", function()
    local a = run_folder(config_of(), rows_of(20))
    local b = run_folder(config_of {lr = 0.001, heads = 4}, rows_of(10))
    local out = ends(0, "inspect", a, b)
    has(out, "step 20 of 100, stopped", "step 10 of 100, stopped")
    assert.truthy(out:find "\nheads +%- +4\nlr +0%.003 +0%.001\n$", out)
    local lines = {}
    for line in ends(0, "inspect", a, b, "--json"):gmatch "[^\n]+" do
      lines[#lines + 1] = dkjson.decode(line)
    end
    assert.same({20, 10}, {lines[1].step, lines[2].step})
  end)
end)

describe("diff of two runs", function()
  it("says options, the first step and the largest difference of each field; not of times", function()
    local function change(step) return step == 7 and 0.5 or step > 7 and 0.25 or 0 end
    local a = run_folder(config_of(), rows_of(20))
    local b = run_folder(config_of {lr = 0.001}, rows_of(12, change))
    local out = ends(1, "diff", a, b)
    assert.truthy(out:find "\nlr +0%.003 +0%.001\n", out)
    assert.truthy(out:find "\nloss +7 +0%.571428571 +1%.07142857 +0%.2 +0%.583333333 +0%.5 +7\n", out)
    has(out, "\nsteps: 20 and 12\n", "\n1 option differs; 1 of 3 fields differ\n")
    local o = dkjson.decode((ends(1, "diff", a, b, "--json")))
    assert.same({"lr", "loss", 7, 20, 12}, {o.options[1].name, o.fields[1].name, o.fields[1].step, o.steps_a,
      o.steps_b})
    assert.equal("the options are the same; 3 fields equal in all steps that both have\n",
      ends(0, "diff", a, a))
    local c = run_folder(config_of(), rows_of(20))
    write(c .. "/metrics.jsonl", '{"step":21,"loss":null,"perplexity":2}\nx\n', "ab")
    out = ends(1, "diff", a, c)
    has(out, "only in " .. c .. ": perplexity\n", "steps: 20 and 21")
    has(select(2, ends(1, "diff", a, c)), "1 line cannot be read; line 22")
  end)
end)

local BROWSERS = {"chromium", "chromium-browser", "google-chrome"}

--- The page as a browser has it, and what it says meanwhile; nil where there is no browser.
local function browsed(path)
  for _, name in ipairs(BROWSERS) do
    if helper.shell("command -v " .. name) ~= "" then
      return helper.shell(("home=$(mktemp -d); HOME=$home timeout 100 %s --headless --no-sandbox "
        .. "--disable-gpu --disable-dev-shm-usage --dump-dom --enable-logging=stderr --v=0 "
        .. "--user-data-dir=$home 'file://%s'; rm -rf $home"):format(name, path))
    end
  end
end

describe("the page of runs", function()
  it("has every value, named elements, nothing from elsewhere; a browser says nothing of it", function()
    local rows = rows_of(20)
    rows[12].loss = dkjson.null
    local a = run_folder(config_of(), rows)
    local b = run_folder(config_of {lr = 0.001}, {'{"step":1,"loss":2.5,"event":"<b>&\\"skip"}\n', "x\n"},
      {["samples.jsonl"] = '{"step":1,"sample":"</pre>&"}\n'})
    local path = helper.file("", ".html")
    ends(0, "inspect", a, b, "--html=" .. path)
    local handle <close> = assert(io.open(path))
    local text = handle:read "a"
    for _, word in ipairs {"<script", "<link", "<img", "<iframe", "src=", "href=", "@import", "url(", "http",
      "nan,", "inf"} do
      assert.is_nil(text:find(word, 1, true), word)
    end
    local dom, err = browsed(path)
    if not dom then helper.pending("no browser here: " .. table.concat(BROWSERS, ", ")) end
    assert.is_nil(err:find("CONSOLE", 1, true), err)
    for _, id in ipairs {"runs", "options", "curve-loss", "curve-lr", "curve-ms", "curve-validation_loss",
      "notes", "samples"} do
      has(dom, 'id="' .. id .. '"')
    end
    has(dom, "&lt;b&gt;&amp;\"skip", "1 line cannot be read", '<td>lr</td><td>0.003</td><td>0.001</td>')
    local section = dom:match '<section id="curve%-loss">(.-)</section>'
    local found = 0
    local cell = '<td class="right">([^<]*)</td>'
    for step, x, y in section:gmatch("<tr>" .. cell:rep(3) .. "</tr>") do
      found, step = found + 1, tonumber(step)
      if step == 12 then assert.equal("null", x) else assert.near(4 / step, tonumber(x), 1e-13) end
      assert.equal(step == 1 and "2.5" or "", y)
    end
    assert.equal(20, found)
    local _, lines = section:gsub("<polyline", "")
    assert.equal(3, lines) -- one has a gap, one is a point
  end)
end)
