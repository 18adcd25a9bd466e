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
