"""Small sizes of the benches that run on PEs; no PE has as much as another."""

UNEVEN = {
    "matmul": {"m": 37, "k": 20, "n": 50, "tile": 16},
    "matmul_ref": {"m": 37, "k": 20, "n": 50},
    "softmax": {"m": 37, "n": 50, "block": 3},
    "layernorm": {"m": 37, "n": 50, "block": 3},
    "flash_attention": {"seq": 19, "d": 12, "block": 8},
    "moe_route": {"tokens": 37, "d": 12, "experts": 5},
    "pointer_chase": {"entries": 37, "hops": 5},
}

# Small sizes that give each of the shipped machine's 256 PEs something to do.
WIDE = {
    "matmul": {"m": 64, "k": 16, "n": 64, "tile": 16},
    "matmul_ref": {"m": 64, "k": 16, "n": 64},
    "softmax": {"m": 256, "n": 8},
    "layernorm": {"m": 256, "n": 8},
    "flash_attention": {"seq": 8, "d": 4, "block": 8},
    "moe_route": {"tokens": 256, "d": 4, "experts": 4, "top": 1},
    "pointer_chase": {"entries": 512, "hops": 1},
}
