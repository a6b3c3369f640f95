-- tools.lua: asking before and after, data, metrics, training, profiles.
return [[
audit(step: any, ...: any) -> table
  Computes a step twice, with the devices in each other's places, and compares the bits.
cache(model: table, batch: integer, length: integer, {dtype: dtype, mesh: Mesh, rules: table}) -> Cache
  Room for the keys and values of a model's attention layers: rows of so many tokens.
chat_template(source: string) -> ChatTemplate, string, string
  Reads a chat template, as models bring them; or nil, message, code.
checks(step: any, ...: any) -> table
  What only data shows: equal shards, equal random bits, means of means, tokens without an expert.
expect(plan: any, budget: table) -> any
  Raises E_BUDGET unless the plan's communication is as said.
explain(step: any, ...: any) -> table
  How a call would run: collectives, memory, work; as a text by tostring.
explain_rules(rules: table, model: table, mesh: Mesh?) -> table
  Which rule gave which dim of which Param its mesh axes.
find_nonfinite(step: any, ...: any) -> table
  Runs a step that gave a NaN or an infinity again, and says which op gave the first.
forbid(plan: any, what: table?) -> any
  Raises E_BUDGET if the plan has a collective that answers to all that is said.
generate(model: table, ids: table|string|Tensor, {max_tokens: integer, temperature: number, top_k: integer,
    top_p: number, min_p: number, repetition_penalty: number, seed: integer, stop: table|integer|string,
    tokenizer: table, callback: function, cache: table, cache_dtype: dtype, slide: boolean, mesh: Mesh,
    rules: table}) -> table, any, any
  Continues prompts, lists of ids: the new tokens, why they end, with a tokenizer their texts.
learn_tokenizer(texts: string|string[], {size: integer, pattern: string, special: string[]}) -> Tokenizer
  A byte-level tokenizer of so many ids, learnt from texts. pattern: how they are split; default GPT-2's.
  special: tokens behind all others; default <|endoftext|>. Or nil, message, code.
set_print_options({precision: integer, threshold: number, edge_items: integer, width: number,
    suppress: boolean, sign: "-"|"+"|" ", float_mode: "maxprec"|"fixed"|"unique"|"maxprec_equal"}) -> table
  How tensors print from now on; returns what held before.
show(value: any, {precision: integer, threshold: number, edge_items: integer, width: number,
    suppress: boolean, sign: "-"|"+"|" ", float_mode: "maxprec"|"fixed"|"unique"|"maxprec_equal",
    items: integer, by_device: boolean, gather: boolean}) -> string
  Any value as a text to be read: tables and what is in them, tensors with their values.
tokenizer(path: string, {pattern: string, special: table}) -> Tokenizer
  A tokenizer from a file (tokenizer.json, .tiktoken, sentencepiece's .model, GGUF) or a folder with one.
  pattern, special: of a .tiktoken file, which says neither. Or nil, message, code.
verify(step: any, ...: any) -> table
  Runs a step on its mesh and on one device, and compares the results.
why_sharding(x: any, ...: any) -> string, ...
  Who gave a tensor its layout, op by op.
Cache:filled(cache: Cache) -> integer[]
  How many tokens each row has.
Cache:open(cache: Cache, ids: Tensor) -> Past
  Begins a call of a model: what its layers take, by their paths; ids below 0 are no tokens.
Cache:rewind(cache: Cache, lengths: integer[]?)
  Forgets what is behind the first tokens of each row.
ChatTemplate:render(template: ChatTemplate, variables: table) -> string, string, string
  The text of messages and whatever else a template knows by name; or nil, message, code.
ChatTemplate.source: string
  Its text.
Past:close(past: Past)
  Ends the call: its tokens count from now on.
Past:last(past: Past, x: Tensor) -> Tensor
  Of x [batch, T, ...] what belongs to each row's last token, [batch, 1, ...].
Plan:buffers(plan: Plan) -> table
  What lies where in memory, when.
Plan:collectives(plan: Plan) -> table
  Its collectives, each with lines, tensors, bytes, axes, reasons.
Plan:copies(plan: Plan) -> integer
  Donations so far that needed a copy.
Plan:device_flops(plan: Plan) -> number[]
  Operations of each device, in the order of the mesh: they may differ where devices skip branches.
Plan:fits(plan: Plan) -> boolean, string
  Does it fit on a device; if not, why.
Plan:flops(plan: Plan) -> number, number
  Operations of one device: of the one that has the most, and of the one that has the fewest.
Plan:memory(plan: Plan) -> table
  Bytes on one device, by kind.
Plan:mesh(plan: Plan) -> Mesh
  The mesh of its layouts, or nil.
Plan:steps(plan: Plan) -> table
  Its steps.
Program:blocks(program: Program, value: integer) -> integer
  Of a value in shard_map what each device has, as a value.
Program:body(program: Program, node: integer, which: integer) -> integer
  Appends what a node does inside, in an iteration or branch; the number of its first node.
Program:close(program: Program)
  Frees it.
Program:flag(program: Program, value: integer, stacked: boolean?) -> integer
  Of a value whether it has an infinity (0), a NaN (1) or neither (-1), as a value.
Program:nodes(program: Program) -> table
  Its ops.
Program:params(program: Program) -> table
  What goes in.
Program:plan(program: Program) -> Plan
  Its plan.
Program:results(program: Program) -> table
  The values that come out.
Program:run(program: Program, ...: any) -> any
  Runs it with other inputs or results.
Program:sum(program: Program, value: integer) -> integer
  Of a value the sum of its bits, as a value.
Program:why(program: Program, value: integer) -> string, string
  The type of a value as it will lie, and who split it.
data.bytes_read() -> integer
  How many bytes of data files this process has read.
data.computed(n: integer, fn: function) -> Records
  Records that a function of the id (from 0) gives: tables of fields.
data.documents(tokens: Tokens, {ends: integer, starts: integer}) -> Records
  The documents of a list of ids: an id ends each, or starts it.
data.encode(texts: Records, encoder: Tokenizer|function, {field: string, key: string,
    folder: string|false}) -> Records
  Texts as documents of ids, which are kept between runs. field: default "text"; key: the name of a function's
  ids; folder: where they are kept, false: nowhere.
data.idx(paths: table) -> Records
  Records from IDX files, one file a field.
data.jsonl(path: string|string[], {fields: string[]}) -> Records
  Records from lines of JSON, an object each.
data.largest(tokens: Tokens) -> integer
  The largest of the ids, 0 where there are none.
data.mix(kinds: table, weights: table) -> Records
  Records of several kinds by weights: any number of them from the first on has each kind's share to within
  one.
data.npy(paths: table) -> Records
  Records from npy files, one file a field.
data.pack(documents: Records, length: integer, {mode: "split"|"best_fit", file: string}) -> Records
  Documents as rows of one length: inputs, labels, segments for attention, weights of the labels. file: where
  the index is kept.
data.tensors(values: table) -> Records
  Records from tensors, whose first dim counts them.
data.text(path: string|string[], {separator: string}) -> Records
  Texts: each file is one, or what stands between separators.
data.tokens(path: string|string[]) -> Tokens
  The ids of a file, by what it is; several files, or a name with *, are one list.
data.windows(tokens: Tokens, length: integer, first: integer?, last: integer?) -> Records
  Pieces of a text, to learn from each what comes next.
Tokenizer.bos: integer
  The id that begins a text; nil where there is none.
Tokenizer.chat_template: string
  The template of conversations, as text; nil where there is none.
Tokenizer.eos: integer
  The id that ends a text; nil where there is none.
Tokenizer.size: integer
  How many ids there are.
Tokenizer.stops: integer[]
  The ids that end a turn.
Tokenizer:decode(self: Tokenizer, ids: integer[], {special: boolean}) -> string
  The bytes of ids; special: of special tokens, too.
Tokenizer:encode(self: Tokenizer, text: string, {special: boolean|"refuse", bos: boolean, eos: boolean,
    offsets: boolean}) -> integer[], table?
  The ids of a text, from 0; offsets: and a list of {begin, end}, in bytes from 0. special: what is done with
  the text of special tokens; default false: it is text. bos, eos: default as the file says.
Tokenizer:encode_batch(self: Tokenizer, texts: string[], {special: boolean|"refuse", bos: boolean,
    eos: boolean}) -> table
  The ids of each text, over the processor's threads.
Tokenizer:id(self: Tokenizer, piece: string) -> integer
  The id of a piece (its bytes) or a special token; nil where there is none.
Tokenizer:piece(self: Tokenizer, id: integer) -> string
  The bytes of an id.
Tokenizer:save(self: Tokenizer, path: string) -> boolean
  Writes a tokenizer.json. Or nil, message, code.
Tokenizer:stream(self: Tokenizer, {special: boolean}) -> function
  A function from the next id to the text that is complete with it; without an id, to the rest.
Tokenizer:tokens(self: Tokenizer, source: string|Tokens, {special: boolean|"refuse", bos: boolean,
    eos: boolean}) -> Tokens
  The ids of a text file, or of bytes that data.tokens gave, for training. Or nil, message, code.
tokens:bytes(tokens: Tokens, first: integer?, last: integer?) -> string
  The ids as bytes.
tokens:cut(tokens: Tokens, mark: integer|string, keep: string?) -> Tokens
  Where the pieces between marks begin and end, as a list: the mark is an id, or a text of up to 16 bytes. It
  belongs to no piece; keep "end": to the one before it, "start": to the one behind.
tokens:largest(tokens: Tokens, first: integer?, last: integer?) -> integer, integer?
  The largest id of a range, and its first place.
tokens:numbers(tokens: Tokens, first: integer?, last: integer?) -> integer[]
  The ids as a list.
tokens:place(tokens: Tokens, at: integer) -> string?, integer
  The file that has id number `at` (from 0), and its first byte there.
tokens:width(tokens: Tokens) -> integer
  Bytes per id.
tokens:windows(tokens: Tokens, starts: table, shape: shape, dtype: dtype,
    sharding: NamedSharding|P?, both: boolean?) -> Tensor, Tensor?
  Rows of ids that begin at the starts (from 0); both: and those that begin one later, read at once.
Records:batch(self: Records, ids: integer[], shardings: table?) -> table
  The given records (ids from 0): a tensor of each field.
Records:each(self: Records, size: integer, shardings: table?) -> function
  All records in order, in batches of one size.
Records:filter(self: Records, pick: function, {file: string}) -> Records
  Those for which pick(record, id) is true; all are looked at once. file: where the index of them is kept.
Records:fingerprint(self: Records) -> table
  Says for each field whether the data is the same.
Records:get(self: Records, id: integer) -> table
  One record (ids from 0), as numbers in nested lists and texts.
Records:map(self: Records, fn: string|function, {workers: integer}) -> Records
  What fn(record, id) makes of each: tables of fields. The name of a module that returns fn: in threads, ahead
  of the step.
Records:shuffled(self: Records, {batch: integer, seed: integer, shardings: table,
    prefetch: integer}) -> Batches
  Batches in random order: called with a step (from 1) they give its batch, and begin those behind it.
Batches:__call(self: Batches, step: integer) -> table
  The batch of a step.
Batches:where(self: Batches, id: integer, epoch: integer?) -> integer, integer
  The step that has a record (ids from 0), and its row there; epoch: how often all have come before.
metrics.Accuracy({top_k: integer}) -> Accuracy
  The share of rows whose label is where the logits are largest, or among the top_k largest.
metrics.Mean({of: string}) -> Mean
  The mean of all values that it was given, summed on the devices.
metrics.MultiMetric(metrics: table) -> MultiMetric
  Metrics by name, updated and computed at once.
metrics.Perplexity({of: string}) -> Perplexity
  e to the mean of the losses, in nats.
metrics.late() -> function
  A function that takes a step's scalars, as a tree, and gives the numbers of the step before; nil the first
  time.
Accuracy:compute(self: Accuracy) -> Tensor
  The share so far, a scalar.
Accuracy:reset(self: Accuracy)
  Forgets what it was given.
Accuracy:update(self: Accuracy, logits: Tensor, labels: Tensor, {weights: Tensor,
    count: integer|Tensor})
  Takes in logits [..., classes] and 0-based labels [...]; weights: of each label; count: only so many rows
  count.
Mean:compute(self: Mean) -> Tensor
  The mean so far, a scalar.
Mean:reset(self: Mean)
  Forgets what it was given.
Mean:update(self: Mean, values: Tensor|number, {weights: Tensor, count: integer|Tensor})
  Takes in values; weights: of each, or of each of the first dims; count: only so many of the first dim
  count.
MultiMetric:compute(self: MultiMetric) -> table
  The value of each, a scalar.
MultiMetric:reset(self: MultiMetric)
  Forgets what they were given.
MultiMetric:update(self: MultiMetric, values: table)
  Gives each what it asks for by name, and all of them weights and count where these are given.
Perplexity:compute(self: Perplexity) -> Tensor
  The perplexity so far, a scalar.
Perplexity:reset(self: Perplexity)
  Forgets what it was given.
Perplexity:update(self: Perplexity, loss: Tensor, {weights: Tensor, count: integer|Tensor})
  Takes in losses; weights, count: as in Mean:update.
train.Trainer(model_config: table|string, training_config: *table, distributed_config: table?) -> Trainer
  A trainer of a recipe, from three configurations: what the program takes as flags stands in them.
Trainer:train(self: Trainer, train: Records?, val: Records?) -> table
  Trains on these records or on the recipe's: what the program writes into result.json.
train.from_pretrained(recipe: table, path: string, {mesh: Mesh, rules: table,
    config: table}) -> table, table, table
  A recipe's model with the weights of a folder (config.json, or Meta's params.json) or of a GGUF file, its
  config, and what the file says of it. Or nil, message, code.
train.main(recipe: table|string, args: table, instead: function?)
  The program: trains a recipe as the arguments say.
train.mesh(text: string) -> Mesh
  A mesh from "data:4,model:2"; nil for "none".
train.precision(config: table) -> string
  The dtype of a recipe's arithmetic.
train.run(recipe: table, options: table) -> table
  One training run of a recipe.
train.save_pretrained(recipe: table, path: string, model: table, config: table, {cast: dtype,
    encoding: string, metadata: table}) -> boolean
  Writes a recipe's model as a folder of Hugging Face, or as a GGUF file where the path ends in .gguf. Or nil,
  message, code.
train.script(recipe: table)
  Runs the program where the recipe's file is the script that was started.
profile.finish()
  The end of a program that was started with --profile=FILE: the table, on the standard error.
profile.meter() -> function
  A function that gives the shares of time that threads and devices were busy since its last call.
profile.shares_text(list: number[]) -> string
  Shares as a text: "96% 93%", or the range of many.
profile.start(file: *string) -> boolean
  Records from now on what runs.
profile.stop() -> table
  Ends the recording, writes the file, and gives what took how long.
]]
