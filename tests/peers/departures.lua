-- departures.lua: cases that meshlua does not pass on purpose, or that a peer gets wrong: a suite, an op and what the
-- runner says, as patterns, and the reason. docs/peers.md counts them by reason; a row that no case meets is an error.
return {
  {"", "", "takes numbers, not bool", "arithmetic of bools is an error: astype first"},
  {"", "", "expected a tensor or a number, got boolean", "arithmetic of bools is an error: astype first"},
  {"", "^a[ln][ly]$", "takes bool %(x", "all and any of numbers: compare them with 0 first"},
  {"", "softm", "needs a last dim of at least one element", "softmax along a dim of size 0 is an error"},
  {"jax", "^top_k", "%-nan, not inf", "all NaN are equal, whatever their sign bit"},
  {"jax", "^clamp", "gradient: 3 of 6",
    "clip with low above high: the gradient goes to high, whose value it is"},
  {"torch", "", "dtype float32, not int%d%d", "floor, ceil, round and mean pools of integers are floats"},
  {"torch", "^cumm", "dtype int32, not bool", "cummax and cummin of bools count them as int32"},
  {"torch", "^masked_fill", "dtype int32, not bool", "a number beside a bool makes an int32"},
  {"torch", "^arange$", "elements: %-?%d, not", "arange of broken numbers is cut to integers at the end"},
  {"", "^Reduce", "is empty and has no extremum", "the largest of no elements is an error"},
  {"jax", "^integer_pow$", "5%.15625, not 5%.21875",
    "powers of bfloat16 are rounded once, not at each product"},
  {"optax", "^exponential_decay$", "decay_rate is 0", "a schedule that would not move is an error"},
  {"optax", "^[ep][xo].*", "transition_steps is", "a schedule that would not move is an error"},
  {"optax", "^adafactor$", "18%.0398", "optax's decay of adafactor is float32, also of Params of float64"},
  {"torch", "layer_norm", "gradient: 1 of 1 elements: 0%.0, not", "PyTorch's rounding, beside an exact 0"},
}
