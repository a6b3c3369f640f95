-- page_spec.lua: the page that `plan --html` writes, as a browser reads it.
local dkjson = require "dkjson"
local helper = require "spec.helper"
local oracle = require "spec.oracle"

local BROWSERS = {"chromium", "chromium-browser", "google-chrome"}
local FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom "
  .. "--enable-logging=stderr --v=0"

local function config_of(name)
  for _, row in ipairs(oracle.read "configs") do
    if row.name == name then return helper.file(dkjson.encode(row.config), ".json") end
  end
end

--- The page as a browser has it, and what it says meanwhile; nil where there is no browser.
local function browsed(path)
  for _, name in ipairs(BROWSERS) do
    if helper.shell("command -v " .. name) ~= "" then
      return helper.shell(("home=$(mktemp -d); HOME=$home timeout 100 %s %s --user-data-dir=$home "
        .. "'file://%s'; rm -rf $home"):format(name, FLAGS, path))
    end
  end
end

describe("the page of a plan", function()
  it("takes nothing from elsewhere, and has each part in a browser, which says nothing of it", function()
    local path = helper.file("", ".html")
    local out, message, code = helper.run {"--devices=fake:h200:64", "plan", config_of "llama-3-8b",
      "--html=" .. path}
    assert.equal(0, code, message)
    local handle <close> = assert(io.open(path))
    local text = handle:read "a"
    assert(#text > 1 << 12 and #text < 1 << 20)
    for _, word in ipairs {"<script", "<link", "<img", "<iframe", "src=", "href=", "@import", "@font-face",
      "url(", "http"} do
      assert.is_nil(text:find(word, 1, true), word)
    end
    local dom, err = browsed(path)
    if not dom then helper.pending("no browser here: " .. table.concat(BROWSERS, ", ")) end
    assert.is_nil(err:find("CONSOLE", 1, true), err)
    assert(dom:find(out:match "^[^\n]+", 1, true), "the verdict")
    for _, id in ipairs {"verdict", "layouts", "mesh", "timeline", "memory", "collectives", "explanation"} do
      assert(dom:find('id="' .. id .. '"', 1, true), id)
    end
    for _, part in ipairs {"Layouts, best first", "what a device holds", "device 63: data=", "; holds ",
      "Memory over the step", "a device has 131.32 GiB", "all_gather over data"} do
      assert(dom:find(part, 1, true), part)
    end
    assert(select(2, dom:gsub("<rect", "")) > 100)
  end)
end)
