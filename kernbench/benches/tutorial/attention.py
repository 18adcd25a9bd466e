"""o = softmax(q @ k.T * scale) @ v, head by head, in one pass over the keys.

The maximum, the sum and the output so far are corrected as each block of keys comes.
"""

from itertools import product
from typing import Any

import numpy as np

from kernbench import tl
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench

LOWEST = -1e30
"""Below every score, and finite: no inf - inf can come."""


def attention_kernel(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    scale: float,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    tl: Any,
) -> None:
    """One PE's heads, a block of queries at a time."""
    heads, places, features = tl.own(q)
    for head, low in product(heads, places[::BLOCK_M]):
        mine = range(low, min(low + BLOCK_M, places.stop))
        rows = slice(low, mine.stop)
        with tl.scope():
            query = tl.load(q[head, rows])
            top = tl.full((len(mine), 1), LOWEST, tl.float32)
            total = tl.zeros((len(mine), 1), tl.float32)
            acc = tl.zeros((len(mine), len(features)), tl.float32)
            for at in range(0, mine.stop if CAUSAL else len(places), BLOCK_N):
                keys = slice(at, min(at + BLOCK_N, len(places)))
                with tl.scope():
                    key = tl.load(k[head, keys])
                    score = tl.dot(query, tl.trans(key), out_dtype=tl.float32) * scale
                    if CAUSAL:
                        row = tl.reshape(tl.arange(low, mine.stop), (-1, 1))
                        seen = row >= tl.arange(at, keys.stop)
                        score = tl.where(seen, score, LOWEST)
                    higher = tl.maximum(top, tl.max(score, axis=1, keepdims=True))
                    weight = tl.exp(score - higher)
                    fade = tl.exp(top - higher)
                    value = tl.cast(tl.load(v[head, keys]), tl.float32)
                    tl.fma(total, fade, tl.sum(weight, 1, keepdims=True), out=total)
                    tl.dot(weight, value, acc=tl.mul(acc, fade, out=acc))
                    tl.maximum(top, higher, out=top)
            tl.store(o[head, rows], tl.cast(acc / total, o.dtype))


@bench(
    name="tutorial_attention",
    description="attention in one pass over the keys, causal or not",
)
def run(
    torch: Any,
    heads: int = 8,
    seq: int = 100,
    d: int = 32,
    dtype: str = "f16",
    block: int = 32,
    causal: bool = True,
    pes: int = 8,
) -> None:
    """``heads`` heads over ``pes`` PEs of a cube, of ``seq`` places of ``d`` each."""
    at_least_one(heads=heads, seq=seq, d=d, block=block, pes=pes)
    a_head_a_pe = DPPolicy(pe="row_wise", num_cubes=1, num_pes=pes)
    shape = (heads, seq, d)
    made = [
        torch.tensor(torch.rng.standard_normal(shape), dtype, a_head_a_pe, name=name)
        for name in "qkv"
    ]
    o = torch.empty(shape, dtype, a_head_a_pe, name="o")
    blocks = {"BLOCK_M": block, "BLOCK_N": block}
    torch.launch(
        "attention", attention_kernel, *made, o, d**-0.5, **blocks, CAUSAL=causal
    )
    q, k, v = (each.numpy().astype("f8") for each in made)
    score = q @ k.transpose(0, 2, 1) / np.sqrt(d)
    if causal:
        score = np.where(np.tri(seq, dtype=bool), score, -np.inf)
    e = np.exp(score - score.max(axis=2, keepdims=True))
    torch.expect(o, e / e.sum(axis=2, keepdims=True) @ v)
