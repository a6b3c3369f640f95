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
]]
