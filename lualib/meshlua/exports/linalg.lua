-- linalg.lua: factors of matrices: the last two dims of a tensor of float32 or float64. Others count them.
return [[
linalg.cholesky(x: Tensor, upper: boolean?, symmetrize_input: boolean?) -> Tensor
  The lower triangles l of symmetric positive definite matrices x = l l^T (upper: l^T), NaN for others; of
  (x + x^T) / 2, unless symmetrize_input is false.
linalg.det(x: Tensor) -> Tensor
  The determinants of matrices.
linalg.eigh(x: Tensor, symmetrize_input: boolean?) -> Tensor, Tensor
  Eigenvalues of symmetric matrices, rising, and eigenvectors, a column each; of (x + x^T) / 2, unless
  symmetrize_input is false: then the lower triangle is read.
linalg.inv(x: Tensor) -> Tensor
  The inverses of matrices.
linalg.lu(x: Tensor) -> Tensor, Tensor, Tensor
  l (below the diagonal; its own is of ones) and u in one matrix, the rows that were exchanged, and the
  order of x's rows in l u (both 0-based int32).
linalg.qr(x: Tensor, mode: "reduced"|"complete"|"r"?) -> Tensor, Tensor?
  Orthonormal columns q and upper triangles r with x = q r; complete: q is square; "r": r alone.
linalg.slogdet(x: Tensor) -> Tensor, Tensor
  The signs of determinants, and the logarithms of their absolute values.
linalg.solve(a: Tensor, b: Tensor) -> Tensor
  x of a x = b; b: matrices, or one vector. Singular matrices give infinities or NaN.
linalg.svd(x: Tensor, full_matrices: boolean?, compute_uv: boolean?) -> Tensor, Tensor?, Tensor?
  u, s and vt with x = u diag(s) vt, s falling; full_matrices (default true): u and vt are square;
  compute_uv = false: s alone.
linalg.triangular_solve(a: Tensor, b: Tensor, left_side: boolean?, lower: boolean?,
    transpose_a: boolean?, unit_diagonal: boolean?) -> Tensor
  x of a x = b (left_side) or x a = b (default) for triangles a, default the upper.
]]
