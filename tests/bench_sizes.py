"""Small sizes of the benches that run on PEs: a row each.

Whoever adds such a bench adds its row here; a bench without one fails.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The parameters of a bench for its tests.

    In its ``uneven`` sizes no PE has as much as another. Its ``wide`` ones are small,
    but give each of the shipped machine's 256 PEs something to do.
    """

    uneven: dict[str, int]
    wide: dict[str, int]


BENCH_SIZES = {
    "matmul": Sizes(
        uneven={"m": 37, "k": 20, "n": 50, "tile": 16},
        wide={"m": 64, "k": 16, "n": 64, "tile": 16},
    ),
    "matmul_ref": Sizes(
        uneven={"m": 37, "k": 20, "n": 50},
        wide={"m": 64, "k": 16, "n": 64},
    ),
    "softmax": Sizes(
        uneven={"m": 37, "n": 50, "block": 3},
        wide={"m": 256, "n": 8},
    ),
    "layernorm": Sizes(
        uneven={"m": 37, "n": 50, "block": 3},
        wide={"m": 256, "n": 8},
    ),
    "flash_attention": Sizes(
        uneven={"seq": 19, "d": 12, "block": 8},
        wide={"seq": 8, "d": 4, "block": 8},
    ),
    "moe_route": Sizes(
        uneven={"tokens": 37, "d": 12, "experts": 5},
        wide={"tokens": 256, "d": 4, "experts": 4, "top": 1},
    ),
    "pointer_chase": Sizes(
        uneven={"entries": 37, "hops": 5},
        wide={"entries": 512, "hops": 1},
    ),
}
UNEVEN = {name: sizes.uneven for name, sizes in BENCH_SIZES.items()}
WIDE = {name: sizes.wide for name, sizes in BENCH_SIZES.items()}
