-- batches_module.lua: what the workers of batches.lua do.
return function(record, id) return {sum = {record.image[1][1], record.label, id}} end
