"""Attention in tiles with an online softmax: a head a cube, its queries over its PEs.

Exercises GEMM and MATH in turn, a transposed operand, and results that outlive their
scope (``out=``, ``dot(acc=)``): the maximum, the sum and the output so far are
corrected as each block of keys comes. In its trace look at how the two engines take
turns, one idle while the other works: what a kernel that had two blocks under way could
save.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes, rounded
from kernbench.runtime_api.registry import at_least_one, bench, one_of

LOWEST = -1e30
"""Below every score, and finite: no inf - inf can come."""


def attention_kernel(
    q_ptr: Any,
    k_ptr: Any,
    v_ptr: Any,
    o_ptr: Any,
    n: int,
    d: int,
    grid: Grid,
    block: int,
    tl: Any,
) -> None:
    """One PE's queries against the ``n`` keys of its head, ``block`` at a time."""
    dtype = q_ptr.dtype
    row_bytes = d * q_ptr.itemsize
    rows = grid.rows(grid.cubes * n, tl)
    q = tl.load(q_ptr + rows.start * row_bytes, (len(rows), d), dtype)
    top = tl.full((len(rows), 1), LOWEST, "f32")
    total = tl.zeros((len(rows), 1), "f32")
    out = tl.zeros((len(rows), d), "f32")
    for low in range(0, n, block):
        at = (grid.cube(tl) * n + low) * row_bytes
        shape = (min(block, n - low), d)
        with tl.scope():
            k = tl.load(k_ptr + at, shape, dtype)
            v = tl.cast(tl.load(v_ptr + at, shape, dtype), "f32")
            score = tl.dot(q, tl.transpose(k), out_dtype="f32") * d**-0.5
            higher = tl.maximum(top, tl.max(score, axis=1, keepdims=True))
            weight = tl.exp(score - higher)
            fade = tl.exp(top - higher)
            tl.fma(total, fade, tl.sum(weight, axis=1, keepdims=True), out=total)
            tl.mul(out, fade, out=out)
            tl.dot(weight, v, acc=out)
            tl.maximum(top, higher, out=top)
    tl.store(o_ptr + rows.start * row_bytes, tl.cast(out / total, dtype))


@bench(name="flash_attention", description="attention in tiles, with an online softmax")
def run(
    torch: Any,
    seq: int = 128,
    d: int = 64,
    dtype: str = "f16",
    block: int = 32,
    pes: Pes = None,
) -> None:
    """``seq`` queries and keys of ``d`` elements a head; a head a cube."""
    at_least_one(seq=seq, d=d, block=block)
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    grid = Grid.of(torch, pes)
    shape = (grid.cubes * seq, d)
    data = [torch.rng.standard_normal(shape) for _ in range(3)]
    shared = grid.dp(pe="replicate")
    q = torch.tensor(data[0], dtype, grid.dp(), name="q")
    k = torch.tensor(data[1], dtype, shared, "k")
    v = torch.tensor(data[2], dtype, shared, "v")
    o = torch.empty(shape, dtype, grid.dp(), name="o")
    torch.launch("flash_attention", attention_kernel, q, k, v, o, seq, d, grid, block)
    heads = [rounded(x, dtype).reshape(grid.cubes, seq, d) for x in data]
    scores = heads[0] @ heads[1].transpose(0, 2, 1) / np.sqrt(d)
    e = np.exp(scores)
    attention = e / e.sum(axis=2, keepdims=True) @ heads[2]
    torch.expect(o, attention.reshape(shape))
