-- verbs.lua: every verb and flag of the command line, a row each. Help, errors, the nearest names and the tables of
-- docs/reference.md (by tests/gate/docs_gate.lua) come from them. Nothing is required here: the program reads the rows
-- before it has devices.
local M = {}

---@class VerbRow
---@field [1] string the word
---@field [2] string its arguments: "A B"; "[A]" may be left out; "A..." is one or more
---@field [3] string what it does
---@field starts string? "run": devices and processes, as a script; "devices"; nil: neither
---@field passes boolean? what follows its arguments it reads itself
---@field words boolean? its arguments may begin with dashes
---@field flags OptionRow[]? what it takes beside --help; `open`: without a default of the recipe's

local AS_JSON = {"json", false, "as JSON, on one line"}

--- What training takes of any recipe, beside the recipe's own; train/init.lua puts the recipe's defaults in.
local OF_TRAIN = {
  {"size", "", "the config of a known model", value = "NAME"},
  {"mesh", "", "axes and sizes, as in data:4,model:2; none: one device", value = "AXES"},
  {"rules", "", "the rule set", value = "NAME"},
  {"microbatches", 1, "parts that a step cuts its batch into, to hold less at a time", value = "N",
    least = 1},
  {"accumulate", 1, "batches whose gradients a step gathers: --batch and --microbatches times N", value = "N",
    least = 1},
  {"bits", "", "mesh: the same bits on every mesh over which the batch is split: it is cut into 8 leaves "
    .. "(mesh:N: so many), whose sums are a tree", value = "WORD", form = {"^mesh$", "^mesh:[1-9]%d*$"},
    expected = "mesh, or mesh:16"},
  {"schedule", "", "of a pipeline over the mesh axis stage, 1f1b where nothing is said", value = "WORD",
    words = {"gpipe", "1f1b"}},
  {"seed", 0, "of parameters, data order, dropout and sample", value = "N"},
  {"data", "", "in place of the recipe's own", value = "FILE", path = true},
  {"tokenizer", "", "makes the ids of a text: tokenizer.json, .tiktoken, sentencepiece's .model, GGUF",
    value = "FILE", path = true},
  {"out", "", "a folder for config.lua, config.json, metrics.jsonl, result.json, sample.txt, checkpoints",
    value = "FOLDER", path = true},
  {"metrics", "", "a file with a JSON object for each step, or the numbers as columns (.csv); with a bar in "
    .. "front a command that reads the objects", value = "FILE", path = true},
  {"tensorboard", "", "TensorBoard's files in this folder; alone: in --out/tensorboard", value = "FOLDER",
    path = true, alone = "true"},
  {"config", "", "options from a file that returns a table, as --out's config.lua; those given beside it win",
    value = "FILE", path = true},
  {"strict", false, "a step that does not fit into memory is refused; else it is a warning"},
  {"overwrite", false, "--out and --metrics may replace what an earlier run left there"},
  {"explain", false, "what a step sends, holds and computes, its findings first; nothing is trained"},
  {"checks", false, "what only data shows, looked for in the first batch; nothing is trained"},
  {"log_every", 100, "steps between lines", value = "N", least = 1},
  {"eval_every", 0, "steps between evaluations on the validation records; 0: at the end alone", value = "N",
    least = 0},
  {"eval_batches", "", "batches of an evaluation; all; 0: none is made, nor at the end. By default all there "
    .. "are, but no more than the steps that it stands behind", value = "N", form = {"^%d+$", "^all$"},
    expected = "a number of batches, or all"},
  {"patience", 0, "stop after so many evaluations without a better one; 0: never", value = "N", least = 0},
  {"keep_best", true, "with --eval-every and --out: the step of the best validation loss is saved, and stays",
    value = "BOOL"},
  {"sample_every", 0, "steps between samples; 0: at the end alone", value = "N", least = 0},
  {"profile", "", "a file for what runs when, for ui.perfetto.dev; and a table at the end", value = "FILE",
    path = true},
  {"save_every", "", "a checkpoint each so many steps (100) or minutes (5m); also at the end and on a signal",
    value = "N", units = "steps, or m", form = "^[1-9]%d*m?$",
    expected = "steps as in 100, or minutes as in 5m"},
  {"keep", 3, "so many of the latest checkpoints stay", value = "N", least = 2},
  {"resume", "", "go on from the newest checkpoint in --out; =STEP: that one; =auto: the newest that is "
    .. "whole, or from the beginning", value = "STEP", alone = "latest", form = "^%w+$",
    expected = "auto or a step"},
  {"from", "", "begin with the weights of this file or checkpoint", value = "PATH", path = true},
  {"on_nan", "", "where a loss or gradient is not finite, its update does not count, and then: stop "
    .. "and say which op gave it, skip the batch, or rollback to the newest checkpoint and past the batches "
    .. "since",
    value = "WORD", words = {"stop", "skip", "rollback"}},
  {"on_spike", "", "the same where they are far above those of the steps before", value = "WORD",
    words = {"stop", "skip", "rollback"}},
  {"spike_window", 128, "so many steps before", value = "N", least = 2},
  {"spike_factor", 6.0, "so many deviations above their mean", value = "X", above = 0},
  {"freeze", "", "parameters that are not trained, by Lua patterns of their paths, as in wte,ln_",
    value = "PATTERN"},
  {"lr_of", "", "the learning rate of parameters, times a factor: wte:0.1,ln_:2", value = "PATTERN:X"},
  {"decay_of", "", "the same of their weight decay: ln_:0", value = "PATTERN:X"},
  {"lora", "", "low-rank adapters of these layers are trained, and nothing else: attn:8",
    value = "PATTERN:RANK"},
  {"ema", 0.0, "a running mean of the parameters, which keeps so much of itself at each step (0.999): "
    .. "evaluated, and saved beside, as ema", value = "DECAY", least = 0, below = 1},
  {"export", "", "at the end the weights, adapters merged, as a folder/ of Hugging Face or a .gguf file",
    value = "PATH", path = true},
  {"audit", 0, "each N steps a microbatch is computed again with the devices in each other's places, bit for "
    .. "bit: where it differs the device is named, and the run ends", value = "N", least = 0},
  {"save_failure", "stop", "where a checkpoint cannot be written: stop the run (exit 3), or warn",
    value = "WORD", words = {"stop", "warn"}},
  {"help", false, "this text"},
}

--- What plan takes of any recipe, beside the recipe's own.
local OF_PLAN = {
  {"mesh", "", "axes and sizes, as in data:4,model:2; none: one device; default: the best", value = "AXES",
    open = true},
  {"rules", "", "the rule set, by default the best", value = "NAME", open = true},
  {"size", "", "the config of a known model of the recipe", value = "NAME"},
  {"kernels", "compiled", "as good as those of which runs were published: times are estimates of such",
    value = "KIND", words = {"eager", "compiled", "fp8"}},
  {"html", "", "a page with mesh, timeline, memory and collectives", value = "FILE", path = true},
  {"against", "", "a plan that --json wrote: what is more or less than there", value = "FILE", path = true},
  {"microbatches", 0, "parts that a step cuts its batch into; 0: as few as fit", value = "N", least = 0},
  {"data", "", "in place of the recipe's own", value = "FILE", path = true},
  AS_JSON,
  {"help", false, "this text"},
}

---@type VerbRow[]
M.verbs = {
  {"train", "RECIPE", "train a recipe: by name (convnet, decoder, gpt, llama, mlp), or what a file returns; "
    .. "--help behind it has the recipe's own flags",
    starts = "run", passes = true, flags = OF_TRAIN},
  {"chat", "MODEL", "talk with a model: a GGUF file, a folder as of Hugging Face, a run of train or one of "
    .. "its checkpoints; lines that come through a pipe are answered one by one",
    starts = "devices", flags = {
      {"system", "", "what the model is told first", value = "TEXT"},
      {"prompt", "", "one answer to this, and the end", value = "TEXT"},
      {"raw", false, "without the chat template: texts are continued"},
      {"temperature", 0.7, "below 1 the likely is likelier; 0: always the most likely", value = "X",
        least = 0},
      {"top_k", 0, "only the N most likely tokens are drawn; 0: all", value = "N", least = 0},
      {"top_p", 1.0, "only the most likely that together have this probability", value = "X", above = 0,
        most = 1},
      {"min_p", 0.05, "only those that have at least this share of the most likely's probability",
        value = "X", least = 0, most = 1},
      {"max_tokens", 1024, "of an answer", value = "N", least = 1},
      {"seed", 0, "the same seed gives the same answers", value = "N", least = 0},
      {"context", 0, "tokens that are kept; 0: the model's, at most 4096", value = "N", least = 0},
      {"tokenizer", "", "in place of the model's own", value = "PATH", path = true},
      {"recipe", "", "a recipe that reads the model, by name or of a file", value = "RECIPE",
        path = true},
      {"dtype", "", "of the weights; default: as they are described", value = "DTYPE",
        words = {"float32", "bfloat16", "float16"}},
      {"mesh", "", "axes and sizes, as in model:2; none: one device", value = "AXES"},
      {"rules", "", "the rule set", value = "NAME"},
    }},
  {"plan", "PATH",
    "what a training step would hold, send, compute and take on devices that need not be there (default: "
    .. "fake:h200:8): of a recipe, or of a config.json as of Hugging Face; without --mesh the layouts, best "
    .. "first",
    starts = "devices", passes = true, flags = OF_PLAN},
  {"inspect", "PATH...",
    "what a file, folder or checkpoint of tensors holds: names, dtypes, shapes, bytes, the layouts it was "
    .. "saved with; what a training run has left in its folder: how far it is, its curves, evaluations, "
    .. "notes; of several runs how they differ", flags = {
      {"follow", false, "of a run: also what it writes from now on, until it ends"},
      {"html", "", "of runs: a page with their curves", value = "FILE", path = true},
      AS_JSON,
    }},
  {"diff", "A B", "in which numbers two of them differ: per tensor the largest difference, absolute and "
    .. "relative, and the first element; of two runs the options, and per field the first step; exit code 1 "
    .. "where they do", flags = {AS_JSON}},
  {"check", "PATH", "are they whole: structure, and every byte of a checkpoint by its hash; exit code 1, and "
    .. "what is broken, where not", flags = {AS_JSON}},
  {"convert", "A B", "A's tensors as B, whose name says the format: .safetensors, .npy, .npz, .gguf, or "
    .. "folder/", flags = {
      {"dtype", "", "of floats", value = "DTYPE", words = {"float64", "float32", "float16", "bfloat16"}},
      {"encoding", "", "of the matrices of a .gguf file; vectors are F32", value = "ENCODING",
        words = {"F32", "F16", "BF16", "Q8_0"}},
      {"shard_bytes", 5000000000, "how large the files of a folder may be, as in 300MB; default: 5GB",
        value = "N", units = "bytes", least = 1},
      {"tree", "model", "which tree of a checkpoint", value = "NAME"},
      {"overwrite", false, "B may be there, and is replaced"},
      AS_JSON,
    }},
  {"replay", "RUN", "a step of a training run again, bit for bit: from the newest checkpoint before it "
    .. "forward; says its loss, and what is asked of it", starts = "run", flags = {
      {"step", 0, "which", value = "N", least = 1},
      {"rollback", 0, "the step that line K of guard.jsonl tells of, as it was then", value = "K", least = 1},
      {"records", false, "the records that it reads, as text where they are text"},
      {"explain", false, "what it sends, holds and computes"},
      {"verify", false, "is it the same on one device"},
      {"nonfinite", false, "the op that gave the first NaN or infinity"},
    }},
  {"tokenize", "FILE...", "the texts of files as ids, in a token file as llm.c has it, which training "
    .. "reads; a file's ids begin with the token that begins a text, or end with the one that ends it",
    flags = {
      {"out", "", "the token file; -o FILE is the same", value = "FILE", path = true, short = "o"},
      {"tokenizer", "", "of this file or folder", value = "PATH", path = true},
      {"learn", 0, "one of N ids is learnt from the files, and written beside: X.tokenizer.json of X.bin",
        value = "N", least = 257, most = 4194304},
      {"pattern", "", "by which --learn splits texts, or --tokenizer=FILE.tiktoken", value = "REGEX"},
      {"special", false, "the texts of special tokens are these tokens"},
      {"overwrite", false, "the files may be there, and are replaced"},
      AS_JSON,
    }},
  {"doctor", "", "what this machine has: kernels, BLAS, devices, CUDA, NCCL, MPI", starts = "devices"},
  {"help", "[WORD]", "about a verb, a flag, a function, an error code (E_SHAPE) or a variable",
    words = true},
}

--- Flags as in stock lua: how they are written, what they do.
M.short = {
  {"-e CODE", "run the code"},
  {"-l NAME", "require the library into the global NAME; -l G=NAME into the global G"},
  {"-i", "interactive, after the script"},
  {"-v", "print the versions"},
  {"-E", "ignore LUA_INIT, LUA_PATH, LUA_CPATH and MESHLUA_PATH"},
  {"-W", "turn warnings on"},
  {"--", "stop reading flags: what follows is a script"},
  {"-", "stop reading flags and run what comes in"},
}

--- Flags of the program, in front of a script or verb; behind a verb that starts devices they may stand, too. `value`:
--- what stands behind the =; `units`: of a number.
M.flags = {
  {"devices", "", "N virtual devices of this processor; cuda, cuda:2, cuda:0,1, cuda:0*8: GPUs, all of them, "
    .. "the third, two, or eight virtual devices on the first; fake:N, fake:KIND:N: devices that are planned "
    .. "for and not run on (KIND: cpu, a100, a100-40, h100, h100-96, h200)", value = "N"},
  {"processes", "", "the script or verb in R processes on this host, through mpirun", value = "R"},
  {"dump", "", "print every program after a stage, to the standard error; STAGE:FILE into a file",
    value = "STAGE"},
  {"profile", "", "record what runs, when and on which thread and device, for ui.perfetto.dev or "
    .. "chrome://tracing; and print at the end what took how long", value = "FILE"},
  {"log-ranks", "", "of several processes, those whose output is wanted: all, or ranks as in 0,3; each line "
    .. "then says its rank. Rank 0 alone by default", value = "LIST"},
  {"timeout", "", "how long a process waits for the others, to start or in one collective, before all end; "
    .. "default: 300", value = "SECONDS", units = "s"},
  {"secret", "", "an error where processes would meet over TCP without a secret (MESHLUA_SECRET)",
    value = "require"},
  {"world-size", "", "N processes run this script; left out, as what follows, where a launcher says it",
    value = "N"},
  {"rank", "", "this is process K of them, from 0", value = "K"},
  {"local-rank", "", "the number of this process on its host, from 0", value = "K"},
  {"master-addr", "", "the host where the processes meet", value = "HOST"},
  {"master-port", "", "the port there", value = "N"},
  {"ops", false, "the table of ops: which rules each has"},
  {"types", false, "annotations of all public names, for lua-language-server"},
  {"env", false, "the environment variables, with what they are now"},
  {"help", false, "all verbs and flags"},
}

--- What a code of an error is about.
M.codes = {
  {"E_NOMEM", "host or device memory"},
  {"E_SHAPE", "dims that do not fit together"},
  {"E_DTYPE", "element types that do not fit together"},
  {"E_VALUE", "an argument outside its range"},
  {"E_KEY", "an unknown option, name or attribute"},
  {"E_SPEC", "a P or rule that does not fit the tensor or the mesh"},
  {"E_MESH", "devices and meshes, tensors of different meshes"},
  {"E_INDIVISIBLE", "a dim that its mesh axes do not divide"},
  {"E_INDEX", "a token, label or row id outside its range, found at run time"},
  {"E_STATE", "state changed where it must not be"},
  {"E_TRACED", "the value of a traced tensor was asked for, or a tracer outlived its trace"},
  {"E_DELETED", "a tensor used after donation or release"},
  {"E_DONATE", "a donation that cannot be used"},
  {"E_GRAD", "not differentiable"},
  {"E_UNSUPPORTED", "no kernel or no rule for this op on this device"},
  {"E_IO", "files"},
  {"E_PARSE", "text that is no graph; a file that breaks a rule of its format"},
  {"E_INTERRUPT", "Ctrl-C"},
  {"E_DEVICE", "a GPU, its driver or a library for it: not there, or it failed"},
  {"E_RANKS", "many processes: who is which, and what they need to meet"},
  {"E_STOP", "a signal asked to stop"},
  {"E_DIVERGED", "processes that must do the same do not"},
  {"E_BUDGET", "a plan that sends what ml.forbid or ml.expect do not allow"},
  {"E_INTERNAL", "a fault of meshlua itself"},
}

--- The exit codes, and what they mean.
M.exits = {
  {"0", "done"},
  {"1", "an error in the script; diff or check has found something"},
  {"2", "wrong use: a flag, a value, a script that is not there"},
  {"3", "the machine lacks something, or a file or the standard output cannot be read or written"},
  {"4", "a training run stopped on a loss that is not finite"},
  {"5", "a process waited longer than --timeout for the others"},
  {"75", "stopped by SIGUSR1 or SIGTERM, after a whole step"},
  {"128 + N", "ended by signal N (Ctrl-C: 130)"},
}

--- The row of a verb, or nil.
---@param word string
---@return VerbRow?
function M.find(word)
  for _, row in ipairs(M.verbs) do
    if row[1] == word then return row end
  end
end

--- What the program must start for a word in a script's place: "run", "devices", "none"; nil: it is no verb, and may
--- be a file.
---@param word string
---@param following string? the next argument
---@return string?
function M.starts(word, following)
  local row = M.find(word)
  if row then return row.starts or "none" end
  return word == "run" and following and following:find "^%-n" and "none" or nil -- an error says its successor
end

--- A flag as it is written: "--devices=N".
---@param row OptionRow
---@return string
function M.written(row)
  return "--" .. row[1]:gsub("_", "-") .. (row[2] ~= false and "=" .. (row.value or "...") or "")
end

return M
