-- checkpoint.lua: tensors in files, and what is saved while a model is trained.
return [[
load(file: string, {into: table|Tensor, strict: boolean, partial: string|string[],
    cast: boolean|dtype, map: table, numbers: table, tree: boolean,
    sharding: NamedSharding|P|table|function, mesh: Mesh, rules: table}) -> table|Tensor, table
  The tensors of a .safetensors, .npy, .npz or .gguf file, or of a folder of Hugging Face, as a table by name
  and the file's metadata; or into the Params of a model, each device reading its part. Or nil, message, code.
save(file: string, tree: *table|Tensor, {map: table, numbers: table, strict: boolean, cast: dtype,
    encoding: string, metadata: table, shard_bytes: integer}) -> boolean
  The tensors of a tree as a .safetensors, .npy, .npz or .gguf file, or in a folder/. Or nil, message, code.
checkpoint.Manager(folder: *string, {keep: *integer, keep_every: *integer, best: *string|table,
    every_steps: *integer, every_minutes: *number, async: boolean, memory: *integer,
    timeout: number}) -> Manager
  A folder of checkpoints, which is this run's until close.
Manager:close(self: Manager) -> boolean
  Waits for the save under way, and gives the folder free.
Manager:latest(self: Manager) -> integer
  The newest step that can be restored, or nil.
Manager:restore(self: Manager, trees: table, {step: integer, cast: boolean, partial: boolean,
    pass_over: boolean}) -> table
  Reads a step into trees of Params, wherever they lie.
Manager:save(self: Manager, step: *integer, trees: *table, {metrics: table, state: table,
    force: boolean}) -> boolean
  Saves trees of Params as a step, while training goes on.
Manager:steps(self: Manager) -> integer[]
  The steps that can be restored.
Manager:wait(self: Manager) -> boolean
  Waits until the save under way is committed.
]]
