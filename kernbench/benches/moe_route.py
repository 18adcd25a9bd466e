"""A mixture of experts: each token goes to the ``top`` experts whose gates are not 0.

Exercises control flow on loaded data: a PE looks at the gates of its tokens, loads the
weights of the experts that they name, wherever those lie, and multiplies each with its
tokens only. In its trace look at the loads of those weights, which wait for the links
to the few cubes that hold them (the second SIP's all cross one PCIe link), and at how
far apart the PEs end.
"""

from typing import Any

import numpy as np

from kernbench.benches.grid import Grid, Pes, rounded
from kernbench.common.arrays import Floats
from kernbench.errors import UsageError
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one, bench, one_of


def moe_kernel(x: Any, gates: Any, y: Any, w: Any, tl: Any) -> None:
    """One PE's share of the tokens, expert by expert.

    ``w`` is memory of other PEs.
    """
    tokens, features = tl.own(x)
    odds = tl.load(gates).numpy()
    sums = [tl.zeros((1, len(features)), "f32") for _ in tokens]
    for expert in np.flatnonzero(odds.any(axis=0)).tolist():
        with tl.scope():
            weights = tl.load(w[expert])
            for i in np.flatnonzero(odds[:, expert]).tolist():
                token = tl.load(x[tokens[i] : tokens[i] + 1])
                made = tl.dot(token, weights, out_dtype="f32")
                tl.fma(made, float(odds[i, expert]), sums[i], out=sums[i])
    for token, total in zip(tokens, sums, strict=True):
        tl.store(y[token : token + 1], tl.cast(total, y.dtype))


@bench(
    name="moe_route",
    description="mixture of experts: tokens to the experts of their gates",
)
def run(
    torch: Any,
    tokens: int = 512,
    d: int = 64,
    experts: int = 8,
    top: int = 2,
    dtype: str = "f16",
    pes: Pes = None,
) -> None:
    """The weights lie in the first PE of a cube for each expert, or of all cubes."""
    at_least_one(tokens=tokens, d=d, experts=experts, top=top)
    one_of(("f16", "bf16", "f32"), dtype=dtype)
    if top > experts:
        raise UsageError(f"top={top}: must be at most experts={experts}")
    grid = Grid.of(torch, pes)
    data = torch.rng.standard_normal((tokens, d))
    weights = torch.rng.standard_normal((experts, d, d)) / np.sqrt(d)
    gates = _gates(torch, tokens, experts, top)
    x = torch.tensor(data, dtype, grid.dp(), name="x")
    g = torch.tensor(gates, "f32", grid.dp(), name="gates")
    homes = DPPolicy("row_wise", num_cubes=min(grid.cubes, experts), num_pes=1)
    w = torch.tensor(weights, dtype, homes, name="w")
    y = torch.empty((tokens, d), dtype, grid.dp(), name="y")
    torch.launch("moe_route", moe_kernel, x, g, y, w.ptr)
    each = rounded(data, dtype) @ rounded(weights, dtype)
    torch.expect(y, np.einsum("te,etd->td", rounded(gates, "f32"), each))


def _gates(torch: Any, tokens: int, experts: int, top: int) -> Floats:
    """Random gates (tokens, experts): a softmax over the ``top`` of each token, else 0.

    Expert 0 is popular.
    """
    logits = torch.rng.standard_normal((tokens, experts)) - np.arange(experts) / 4
    lowest_taken = np.sort(logits, axis=1)[:, -top, None]
    odds = np.exp(logits) * (logits >= lowest_taken)
    gates: Floats = odds / odds.sum(axis=1, keepdims=True)
    return gates
