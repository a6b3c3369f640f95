-- cards.lua: what is known of cards, for estimate.lua: their datasheets' figures, and how far kernels stay behind them.
-- What is measured names the rows of bench/published/runs.tsv it was fitted on, of that card: three at most, which
-- docs/backtest.md marks and does not count.

---@class Card
---@field peak number operations per second of products in 16 bits, dense
---@field peak32 number the same in float32
---@field bandwidth number bytes per second, of its memory
---@field network number bytes per second to another host, where nothing else is said
---@field memory number bytes that a program may have
---@field attention number[] share of the peak that attention reaches, forward and backward, causal work counted by
--- half: of the first, second, third kind of flash kernels (Dao et al. 2022, Dao 2023, Shah et al. 2024)
---@field attention_rows string
---@field eager {[1]: number, rows: string}? seconds of a product for each at the peak
---@field compiled {[1]: number, rows: string}?
---@field fp8 {[1]: number, rows: string}? for each at twice the peak

local GIB = 2 ^ 30

---@type table<string, Card>
return {
  a100 = {peak = 312e12, peak32 = 19.5e12, bandwidth = 2.039e12, network = 25e9, memory = 79.2 * GIB,
    attention = {0.31, 0.55, 0.55}, attention_rows = "4",
    eager = {1.27, rows = "3 9 16"}, compiled = {1.18, rows = "14 36 51"}},
  ["a100-40"] = {peak = 312e12, peak32 = 19.5e12, bandwidth = 1.555e12, network = 25e9, memory = 39.4 * GIB,
    attention = {0.31, 0.55, 0.55}, attention_rows = "",
    eager = {1.21, rows = "4 5 8"}},
  h100 = {peak = 989.4e12, peak32 = 67e12, bandwidth = 3.35e12, network = 50e9, memory = 79.1 * GIB,
    attention = {0.18, 0.33, 0.46}, attention_rows = "4 27",
    eager = {1.45, rows = "2 5 7"}, compiled = {1.53, rows = "10 21 25"}, fp8 = {1.63, rows = "18 22 23"}},
  -- attention: 0.8 of the card of 700 W, as its eager kernels reach
  ["h100-96"] = {peak = 989.4e12, peak32 = 67e12, bandwidth = 2.4e12, network = 50e9, memory = 95.0 * GIB,
    attention = {0.145, 0.265, 0.37}, attention_rows = "",
    eager = {1.76, rows = "2"}, compiled = {1.85, rows = "1 9 10"}, fp8 = {2.30, rows = "4 11 13"}},
  h200 = {peak = 989.4e12, peak32 = 67e12, bandwidth = 4.8e12, network = 50e9, memory = 139.8 * GIB,
    attention = {0.18, 0.33, 0.46}, attention_rows = "",
    compiled = {1.72, rows = "2 4"}, fp8 = {1.74, rows = "1 3"}},
}
