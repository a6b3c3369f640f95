/* oplist.h - the only list of ops: OP(NAME, family), whose row is op_row_NAME in host/op/family.c.
 * The name in text, Lua and errors is the row's. */

/* marker */
OP(PARAM, marker)
OP(PLACEHOLDER, marker)
OP(GATHER_EXAMPLES, examples)
OP(IDENTITY, marker)
OP(STOP_GRADIENT, marker)
OP(CONSTRAIN, marker)
OP(BARRIER, marker)
OP(CHECKPOINT_NAME, marker)
OP(PROPAGATION_BARRIER, marker)
OP(SHARD_ALIKE, marker)
OP(FUSED, marker)

/* loop */
OP(SCAN, loop)
OP(WHILE, loop)

/* branch */
OP(COND, branch)
OP(STATIC_COND, branch)

/* create */
OP(FULL, create)
OP(IOTA, create)
OP(RANDOM_BITS, create)
OP(THREEFRY, create)

/* unary */
OP(NEG, unary)
OP(ABS, unary)
OP(SIGN, unary)
OP(EXP, unary)
OP(EXPM1, unary)
OP(LOG, unary)
OP(LOG1P, unary)
OP(TANH, unary)
OP(SIGMOID, unary)
OP(ERF, unary)
OP(ERF_INV, unary)
OP(ERFC, unary)
OP(LGAMMA, unary)
OP(SIN, unary)
OP(COS, unary)
OP(SQRT, unary)
OP(RSQRT, unary)
OP(SQUARE, unary)
OP(INT_POW, unary)
OP(FLOOR, unary)
OP(CEIL, unary)
OP(ROUND, unary)
OP(ISFINITE, unary)
OP(BITNOT, unary)
OP(ASTYPE, unary)
OP(BITCAST, unary)

/* binary */
OP(ADD, binary)
OP(SUB, binary)
OP(MUL, binary)
OP(DIV, binary)
OP(REM, binary)
OP(MOD, binary)
OP(FLOOR_DIVIDE, binary)
OP(POW, binary)
OP(ATAN2, binary)
OP(POLYGAMMA, binary)
OP(MAXIMUM, binary)
OP(MINIMUM, binary)
OP(BITAND, binary)
OP(BITOR, binary)
OP(BITXOR, binary)
OP(SHL, binary)
OP(SHR, binary)
OP(EQ, binary)
OP(NE, binary)
OP(LT, binary)
OP(LE, binary)
OP(GT, binary)
OP(GE, binary)
OP(WHERE, binary)

/* movement; join: those that copy */
OP(RESHAPE, movement)
OP(TRANSPOSE, movement)
OP(BROADCAST, movement)
OP(SLICE, movement)
OP(FLIP, movement)
OP(PAD, pad_concat)
OP(CONCAT, pad_concat)
OP(COPY, movement)

/* reduce */
OP(SUM, reduce)
OP(SUM_SQUARES, reduce)
OP(MAX, reduce)
OP(MIN, reduce)
OP(ALL, reduce)
OP(ANY, reduce)
OP(ARGMAX, reduce)
OP(ARGMIN, reduce)

/* contract */
OP(MATMUL, contract)

/* conv */
OP(CONV, conv)
OP(CONV_GRAD_KERNEL, conv)

/* window */
OP(REDUCE_WINDOW_MAX, window)
OP(REDUCE_WINDOW_SUM, window)
OP(SELECT_AND_SCATTER_ADD, window)
OP(SELECT_AND_GATHER_ADD, window)

/* index */
OP(GATHER, index)
OP(SCATTER_ADD, index)
OP(SCATTER, index)
OP(SCATTER_REDUCE, index)
OP(SORT, index)
OP(TOP_K, index)

/* dynamic */
OP(DYNAMIC_SLICE, dynamic)
OP(DYNAMIC_UPDATE_SLICE, dynamic)

/* cumulative */
OP(CUMSUM, cumulative)
OP(CUMPROD, cumulative)
OP(CUMMAX, cumulative)
OP(CUMMIN, cumulative)

/* linalg */
OP(CHOLESKY, linalg)
OP(TRIANGULAR_SOLVE, linalg)
OP(LU, linalg)
OP(QR, linalg)
OP(EIGH, linalg)
OP(SVD, linalg)

/* rowwise */
OP(SOFTMAX, rowwise)
OP(SOFTMAX_GRAD, rowwise)
OP(LOG_SOFTMAX, rowwise)
OP(SOFTMAX_CROSS_ENTROPY, rowwise)
OP(SOFTMAX_CROSS_ENTROPY_GRAD, rowwise)
OP(SOFTMAX_CROSS_ENTROPY_BOTH, rowwise)

/* norm */
OP(LAYER_NORM, norm)
OP(LAYER_NORM_GRAD, norm)
OP(LAYER_NORM_GRAD_PARTS, norm)
OP(RMS_NORM, norm)
OP(RMS_NORM_GRAD, norm)
OP(RMS_NORM_GRAD_PARTS, norm)

/* attention */
OP(ATTENTION, attention)
OP(ATTENTION_GRAD, attention)
OP(ROPE, rope)

/* train */
OP(DROPOUT, train)
OP(ADAMW, train)

/* manual */
OP(MANUAL_ENTER, manual)
OP(MANUAL_EXIT, manual)
OP(PCAST, manual)
OP(AXIS_INDEX, manual)

/* collective */
OP(ALL_GATHER, collective)
OP(ALL_SLICE, collective)
OP(ALL_REDUCE, collective)
OP(REDUCE_SCATTER, collective)
OP(ALL_TO_ALL, collective)
OP(PERMUTE, collective)
OP(DONE, collective)
OP(PPERMUTE, collective)
