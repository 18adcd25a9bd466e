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


def attention_kernel(q: Any, k: Any, v: Any, o: Any, block: int, tl: Any) -> None:
    """One PE's queries against the keys of its head, ``block`` at a time."""
    queries, features = tl.own(q)
    keys, _ = tl.own(k)
    query = tl.load(q)
    top = tl.full((len(queries), 1), LOWEST, "f32")
    total = tl.zeros((len(queries), 1), "f32")
    out = tl.zeros((len(queries), len(features)), "f32")
    for low in keys[::block]:
        part = slice(low, min(low + block, keys.stop))
        with tl.scope():
            key = tl.load(k[part])
            value = tl.cast(tl.load(v[part]), "f32")
            score = (
                tl.dot(query, tl.trans(key), out_dtype="f32") * len(features) ** -0.5
            )
            higher = tl.maximum(top, tl.max(score, axis=1, keepdims=True))
            weight = tl.exp(score - higher)
            fade = tl.exp(top - higher)
            tl.fma(total, fade, tl.sum(weight, axis=1, keepdims=True), out=total)
            tl.mul(out, fade, out=out)
            tl.dot(weight, value, acc=out)
            tl.maximum(top, higher, out=top)
    tl.store(o, tl.cast(out / total, o.dtype))


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
    torch.launch("flash_attention", attention_kernel, q, k, v, o, block)
    heads = [rounded(x, dtype).reshape(grid.cubes, seq, d) for x in data]
    scores = heads[0] @ heads[1].transpose(0, 2, 1) / np.sqrt(d)
    e = np.exp(scores)
    attention = e / e.sum(axis=2, keepdims=True) @ heads[2]
    torch.expect(o, attention.reshape(shape))
