-- train.lua: trains a recipe, by default the GPT of gpt.lua:
--   script/run models/train.lua --mesh=data:2,model:4 --steps=500
-- --help lists the options; --recipe=NAME takes another file beside this one.
require("meshlua").train.main("gpt", arg)
