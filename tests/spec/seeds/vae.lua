-- vae.lua: a small variational autoencoder (Kingma and Welling 2014), for the programs that are about one
-- and leave it out.
local ml = require "meshlua"
local nn = ml.nn

local VAE = nn.module "VAE"

---@param config {input_dim: integer, hidden_dim: integer, latent_dim: integer, dtype: string?}
function VAE:init(config, rngs)
  local function linear(n_in, n_out) return nn.Linear(n_in, n_out, {rngs = rngs, dtype = config.dtype}) end
  self.encoder = linear(config.input_dim, config.hidden_dim)
  self.mean = linear(config.hidden_dim, config.latent_dim)
  self.logvar = linear(config.hidden_dim, config.latent_dim)
  self.decoder = linear(config.latent_dim, config.hidden_dim)
  self.out = linear(config.hidden_dim, config.input_dim)
end

--- What the batch costs: reconstruction and divergence from the standard normal, a mean over its rows.
---@param batch {data: Tensor, noise: Tensor} data [rows, input_dim] in [0, 1]; noise [rows, latent_dim]: normal
---@return {loss: Tensor, mean: Tensor, logvar: Tensor}
function VAE:__call(batch)
  local h = nn.relu(self.encoder(batch.data))
  local mean, logvar = self.mean(h), self.logvar(h)
  local z = mean + ml.exp(0.5 * logvar) * batch.noise
  local logits = self.out(nn.relu(self.decoder(z)))
  local reconstruction = nn.sigmoid_binary_cross_entropy(logits, batch.data):sum(2)
  local divergence = 0.5 * (ml.exp(logvar) + mean ^ 2 - 1 - logvar):sum(2)
  return {loss = (reconstruction + divergence):mean(), mean = mean, logvar = logvar}
end

return VAE
