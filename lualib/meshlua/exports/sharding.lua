-- sharding.lua: devices, meshes, layouts, arrays made from their parts, collectives.
return [[
AbstractMesh(sizes: integer[], names: string[], {axis_types: *string|table}) -> Mesh
  Names and sizes of a mesh without devices.
Mesh(devices: table, names: string|string[], {axis_types: *string|table}) -> Mesh
  A mesh from a nested list of 0-based device ids.
NamedSharding(mesh: Mesh, spec: P) -> NamedSharding
  How a tensor lies: a P on a mesh.
P(...: string|string[]|table|false|nil) -> P
  For each dim the mesh axis (or axes) that it is split over; nil: whole.
ShapeDtypeStruct(shape: shape, dtype: dtype, sharding: NamedSharding|P?) -> Tensor
  What a tensor of this kind would be, without values.
all_gather(x: tree, axis_name: string|string[], {axis: integer, tiled: boolean}) -> tree
  All devices' x along mesh axes, stacked along a new dim (default 1), or tiled along it.
all_gather_to_host(x: tree) -> tree
  x replicated, so that each process can read all of it.
all_to_all(x: tree, axis_name: string|string[], split_axis: integer?, concat_axis: integer?,
    {tiled: boolean}) -> tree
  Each device cuts x along one dim, sends the parts, and joins what it gets along another.
auto_axes(fn: function, {axes: string|string[], out_sharding: NamedSharding|P|table}) -> function
  fn with explicit axes (default: all) left to propagation inside.
axis_index(axis_name: string|string[]) -> Tensor
  This device's place along mesh axes, from 0.
axis_size(axis_name: string|string[]) -> integer
  How many devices there are along mesh axes.
block_until_ready(x: any) -> any
  Waits until all tensors of a tree are computed; returns the tree.
config({devices: integer|string, passes: table})
  Settles devices before the first tensor, and switches passes.
constrain(x: Tensor, spec: P|NamedSharding|table) -> Tensor
  x with the layout, as a hard constraint: P(...) names mesh axes, a table logical axes.
device_count() -> integer
  How many devices there are, in all processes.
device_put(x: any, sharding: NamedSharding|P|integer|table?, {donate: boolean, may_alias: boolean}) -> any
  x, or every leaf of a tree, with the given sharding.
device_put_replicated(x: tree, devices: integer[]?) -> tree
  x once per device, stacked along a new first dim that is split over them.
devices() -> integer[]
  The 0-based ids of all devices.
distributed({enabled: boolean, world_size: *integer, backend: *string, rank: *integer,
    local_rank: *integer, num_nodes: *integer, num_processes_per_node: *integer, master_addr: string,
    master_port: *integer, tensor_parallel_size: *integer, pipeline_parallel_size: *integer,
    mesh_shape: integer[], mesh_axis_names: string[], mixed_precision: *string}) -> DistributedConfig
  The configuration of a run in many processes, held against what runs.
explicit_axes(fn: function, {axes: string|string[], in_sharding: NamedSharding|P|table}) -> function
  fn with auto axes (default: all) explicit inside.
get_mesh() -> Mesh
  The mesh in context, or nil.
get_named_sharding(model: table, mesh: Mesh?) -> table
  A tree like the model with the NamedSharding of each leaf.
get_partition_spec(model: table) -> table
  A tree like the model with the P of each leaf.
local_device_count() -> integer
  How many devices this process has.
local_devices() -> integer[]
  The ids of this process's devices.
make_array_from_callback(shape: shape, sharding: NamedSharding|P, cb: function, dtype: dtype?) -> Tensor
  The array whose shards a callback gives, one for each distinct index of this process.
make_array_from_process_local_data(sharding: NamedSharding|P, data: Tensor|table,
    global_shape: shape?) -> Tensor
  The array of which each process gives what its devices hold.
make_array_from_single_device_arrays(shape: shape, sharding: NamedSharding|P, arrays: Tensor[]) -> Tensor
  The array whose shards are these, each on its device.
make_mesh(sizes: integer[], names: string[], {devices: integer[], axis_types: *string|table}) -> Mesh
  A mesh over all devices, the last axis fastest.
on_stop(handler: function?)
  What runs when the processes are asked to stop, behind a whole step.
pcast(x: tree, axis_name: string|string[], {to: string}) -> tree
  x as another kind of value along mesh axes: "varying", "reduced", "unreduced"; nothing is moved.
pmap(fn: function, {axis_name: string, in_axes: integer|table, out_axes: integer|table,
    devices: integer[]}) -> function
  fn once per place of its arguments' mapped dims, each on its own device.
pmax(x: tree, axis_name: string|string[]) -> tree
  The largest of all devices' x along mesh axes.
pmean(x: tree, axis_name: string|string[]) -> tree
  The mean of all devices' x along mesh axes.
pmin(x: tree, axis_name: string|string[]) -> tree
  The smallest of all devices' x along mesh axes.
ppermute(x: tree, axis_name: string|string[], perm: table) -> tree
  x of another device: a list of {source, destination}, 0-based places.
process_count() -> integer
  How many processes there are.
process_index() -> integer
  Which of them this is, from 0.
propagation_barrier(x: Tensor) -> Tensor
  x; layouts do not reach across.
psum(x: tree, axis_name: string|string[]) -> tree
  The sum of all devices' x along mesh axes.
psum_scatter(x: tree, axis_name: string|string[], {scatter_dimension: integer, tiled: boolean}) -> tree
  The sum of all devices' x, of which each keeps its part of a dim (default 1).
reshard(x: tree, sharding: NamedSharding|P|table) -> tree
  The tensors of x laid out as asked: any P of their mesh.
set_mesh(mesh: Mesh?) -> table
  Puts a mesh into context; closing what it returns puts back the one before.
shard_alike(x: Tensor, y: Tensor) -> Tensor, Tensor
  x and y, which propagation gives one layout.
shard_largest(axis: string, min_size: integer?) -> function
  A rule that spreads every Param over a mesh axis, on its largest whole dim.
shard_map(fn: function, {mesh: *Mesh, in_specs: *P|table, out_specs: *P|table,
    axis_names: string[]}) -> function
  fn on every device of a mesh, on its block of each argument.
typeof(x: any) -> any
  "float32[8@data,16]": the type of a tensor, number or boolean, or of every leaf of a table.
visualize_mesh(mesh: Mesh)
  Prints which device stands where in a mesh.
visualize_sharding(x: Tensor, {file: string}) -> boolean
  Prints the shards of a tensor as boxes, or writes an SVG file.
Mesh:with(mesh: Mesh, rules: table|function?, fn: function?, ...: any) -> any
  Calls fn(...) with this mesh (and rules) in context.
Mesh.abstract_mesh: Mesh
  Its names, sizes and axis types, without devices.
Mesh.auto_axes: string[]
  The axes that are auto.
Mesh.axis_names: string[]
  Their names.
Mesh.axis_sizes: integer[]
  Their sizes.
Mesh.axis_types: string[]
  "auto", "explicit" or "manual" for each.
Mesh.device_ids: integer[]
  The ids of its devices, flat.
Mesh.devices: table
  The same, nested.
Mesh.explicit_axes: string[]
  The axes that are explicit.
Mesh.is_abstract: boolean
  Has it no devices?
Mesh.is_multi_process: boolean
  Are devices of other processes in it?
Mesh.local_devices: integer[]
  The devices of this process.
Mesh.local_mesh: Mesh
  The mesh of the devices of this process alone.
Mesh.manual_axes: string[]
  The axes that are manual.
Mesh.shape: table<string, integer>
  Name -> size.
Mesh.size: integer
  How many devices.
NamedSharding:addressable_devices_indices_map(self: NamedSharding, shape: shape) -> table
  Device id -> index of its shard, for this process.
NamedSharding:check(sharding: NamedSharding, shape: shape, what: string)
  Raises if a tensor of that shape, called `what`, cannot lie so.
NamedSharding:devices_indices_map(self: NamedSharding, shape: shape) -> table
  Device id -> index of its shard of a tensor of this shape.
NamedSharding:is_equivalent_to(self: NamedSharding, other: NamedSharding, ndim: integer) -> boolean
  Does it place tensors of this rank as the other does?
NamedSharding:shard_shape(sharding: NamedSharding, shape: shape) -> shape
  The shape of one shard.
NamedSharding.device_ids: integer[]
  The ids of the devices, in the mesh's order.
NamedSharding.is_fully_addressable: boolean
  Are all devices this process's?
NamedSharding.is_fully_replicated: boolean
  Has every device the whole?
NamedSharding.mesh: Mesh
  Its mesh; nil for one device.
NamedSharding.num_devices: integer
  How many devices.
NamedSharding.replicated_axes: string[]
  The mesh axes that the spec does not name.
NamedSharding.spec: P
  Its P; nil for one device.
P:update(spec: P, {partitions: table, unreduced: string[], reduced: string[], unreduced_kind: string}) -> P
  A P like this one with some of its fields replaced.
P.partitions: table
  Its entries, false where a dim is whole.
P.reduced: string[]
  Axes that are reduced.
P.unreduced: string[]
  Axes over which a sum is still to be made.
P.unreduced_kind: string
  "sum", "max", "min", or nil.
DistributedConfig:data_parallel_size(self: DistributedConfig) -> integer
  How many copies of the model there are.
DistributedConfig:is_local_main_process(self: DistributedConfig) -> boolean
  Is this process the first of its host?
DistributedConfig:is_main_process(self: DistributedConfig) -> boolean
  Is this process rank 0?
]]
