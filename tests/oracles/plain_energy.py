"""What a run fetched and spent, by looking at every op and every transaction.

Written anew from docs/machine.md, "Energy", and docs/debugger.md, "Why is it slow?".
"""

from collections import Counter, defaultdict
from itertools import pairwise
from math import ceil, prod

import plain_ops
from plain_time import spec

ALIKE = {
    **{"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bool": "i8"},
    **{"u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64"},
}
"""Types that cost as another does."""


def blocks(op):
    """(space, address, bytes) of each row that a stage of a tile moves by DMA."""
    p = op.params
    for i, space in enumerate(p["spaces"]):
        if "rows" not in p:
            yield space, p["addrs"][i], p["sizes"][i]
            continue
        for row in range(p["rows"][i]):
            yield space, p["addrs"][i] + row * p["pitch"][i], p["row_bytes"][i]


# -- fetches ----------------------------------------------------------------------


def fetched(recording):
    """By tensor (bytes read, distinct ones, PEs, launches) of what PEs' DMAs read.

    Distinct are those that a PE had not read before in the launch.
    """
    total = Counter()
    spans = defaultdict(list)
    for op in recording.ops:
        found = []
        if op.name == "TileToken/DMA_READ":
            found = blocks(op)
        elif op.name == "dma_read":
            (region,) = plain_ops.reads(op)
            found = [(row.space, row.addr, row.nbytes) for row in region.pieces]
        call = recording.call_of(op)
        launch = -1 if call is None else call["launch"]
        for space, addr, nbytes in found:
            tensor = _tensor(recording, space, addr)
            if tensor is not None and nbytes:
                total[tensor] += nbytes
                spans[tensor, op.node, launch].append((addr, addr + nbytes))
    answers = {}
    for tensor, nbytes in total.items():
        mine = [key for key in spans if key[0] == tensor]
        distinct = sum(_bytes_in(spans[key]) for key in mine)
        pes = len({node for _, node, _ in mine})
        launches = len({launch for _, _, launch in mine})
        answers[tensor] = (nbytes, distinct, pes, launches)
    return answers


def _tensor(recording, space, addr):
    """The tensor whose byte that is, outside of the scratch of PEs."""
    for entry in recording.allocs:
        inside = entry["addr"] <= addr < entry["addr"] + entry["nbytes"]
        if inside and entry["space"] == space != "tcm":
            return entry["tensor"]
    return None


def _bytes_in(spans):
    """How many bytes at least one of some spans has."""
    count = 0
    reached = 0
    for first, last in sorted(spans):
        count += max(last - max(first, reached), 0)
        reached = max(reached, last)
    return count


# -- energy -----------------------------------------------------------------------


def spent(recording):
    """pJ by class of component."""
    pj = Counter()
    for op in recording.ops:
        _add_work(recording, pj, op)
        for space, nbytes in _moved(op):
            pj[space] += nbytes * spec(recording, f"energy.{space}_pj_byte")
        if op.name.startswith("host_"):
            pj["pcie"] += op.nbytes * spec(recording, "energy.pcie_pj_byte")
    edges = {(edge["src"], edge["dst"]): edge for edge in recording.edges}
    by_path = [_of_path(recording, edges, path) for path in recording.paths]
    for transfer in recording.transfers:
        for kind, cost in by_path[transfer["path"]].items():
            pj[kind] += transfer["nbytes"] * cost
    types = Counter(recording.strings[node["type"]] for node in recording.nodes)
    watts = types["pe_cpu"] * spec(recording, "energy.pe_static_w")
    watts += types["m_cpu"] * spec(recording, "energy.cube_static_w")
    pj["static"] = watts * recording.end["end_ns"] * 1000
    return pj


def _add_work(recording, pj, op):
    """Products at what has all of them, and ops of elements."""
    p = op.params
    if op.kind == "gemm":
        outputs = p["m"] * p["n"]
        rate = _rate(recording, "mac_pj", p["dtype_in"])
        pj["array"] += outputs * p["k"] * rate
        for scope in p.get("epilogue_scopes", []):
            times = 1
            if scope == "k_tile" and "tile" in p:
                times = ceil(p["k"] / p["tile"][2])
            rate = _rate(recording, "element_pj", p["dtype_out"])
            pj["math"] += outputs * times * rate
    if op.kind == "math":
        shapes = [region.shape for region in plain_ops.reads(op)]
        elements = max(prod(shape) for shape in [*shapes, tuple(p["shape_out"])])
        pj["math"] += elements * _rate(recording, "element_pj", p["dtype"])


def _rate(recording, section, dtype):
    return spec(recording, f"energy.{section}.{ALIKE.get(dtype, dtype)}")


def _moved(op):
    """(memory, bytes) of what an op reads and writes; of composites their tiles do."""
    if op.name in ("TileToken/DMA_READ", "TileToken/DMA_WRITE"):
        for space, _, nbytes in blocks(op):
            yield space, nbytes
            yield "tcm", nbytes
    elif op.name in ("TileToken/FETCH", "TileToken/STORE"):
        yield "tcm", op.params["nbytes"]
    elif not op.name.startswith("composite_"):
        for _, region in plain_ops.accesses(op):
            yield region.space, region.nbytes


def _of_path(recording, edges, path):
    """pJ by class of a byte that takes a path."""
    types = [recording.strings[recording.nodes[node]["type"]] for node in path]
    pj = Counter()
    routers = sum(kind in ("router", "io_noc") for kind in types)
    pj["routers"] = routers * spec(recording, "energy.router_pj_byte")
    for link in pairwise(path):
        edge = edges[link]
        kind = recording.strings[edge["kind"]]
        if kind == "pcie":
            pj["pcie"] += spec(recording, "energy.pcie_pj_byte")
        elif kind in ("ucie_mesh", "io_to_cube", "cube_to_io"):
            pj["ucie"] += 2 * spec(recording, "energy.ucie_port_pj_byte")
        else:
            mm = edge["distance_mm"]
            pj["wires"] += mm * spec(recording, "energy.wire_pj_byte_mm")
    return pj
