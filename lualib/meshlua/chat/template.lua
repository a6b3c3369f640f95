-- template.lua: chat templates: texts in Jinja's language that say how a model wants messages to be written. What
-- published ones use is read, equal to Jinja with what transformers sets; the rest is refused by line and word. A template
-- reads nothing but its values, and ends.
local lib = require "meshlua.lib"
local parse = require "meshlua.chat.parse"
local values = require "meshlua.chat.values"

local M = {}

---@class ChatTemplate
---@field source string
local Template = {}

--- What a fault of a template says; other errors go on.
local function said(ok, result)
  if ok then return result end
  if not values.is_fault(result) then error(result, 0) end
  return nil, ("chat template, line %d: %s"):format(result.line or values.meter.line, result.message),
    result.code
end

--- The text of messages.
---@param variables table messages = {{role =, content =}, ...}, add_generation_prompt =, bos_token =, ...; ml.core.null is
--- none
---@return string? text
---@return string? message
---@return string? code
function Template:render(variables)
  if type(variables) ~= "table" then
    lib.raise("E_VALUE", "template:render: expected a table of values, got %s", lib.kind(variables))
  end
  return said(pcall(function()
    values.begin()
    local converted = {}
    for key, value in pairs(variables) do converted[key] = values.from_lua(value) end
    return self.run(converted)
  end))
end

lib.export(Template, "ChatTemplate:", true)
Template.__index = Template
Template.__name = "ChatTemplate"

--- Reads a chat template.
---@param source string
---@return ChatTemplate? template
---@return string? message
---@return string? code
function M.chat_template(source)
  if type(source) ~= "string" then
    lib.raise("E_VALUE", "chat_template: expected a text, got %s", lib.kind(source))
  end
  local run, message, code = said(pcall(function()
    values.begin()
    return parse.compile(source)
  end))
  if not run then return nil, message, code end
  return setmetatable({source = source, run = run}, Template)
end

return lib.export(M, nil, true)
