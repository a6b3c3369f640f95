-- doubled.lua: the module of the workers in file_scenarios.lua.
return function(record, id) return {x = {2 * record.x[1], record.x[2] * id}} end
