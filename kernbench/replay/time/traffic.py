"""The components that carry bytes, or issue what does, but serve no op.

They are memories, routers, ports, CPUs and links, in a group for each kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernbench.common.progress import Progress, parts, stage
from kernbench.replay.text import short_name
from kernbench.replay.time.activity import ActivityIndex
from kernbench.replay.time.op_index import OpIndex
from kernbench.trace import Trace

_KINDS = {
    "hbm_ctrl": "hbm",
    "sram": "sram",
    "pe_cpu": "cpus",
    "m_cpu": "cpus",
    "io_cpu": "cpus",
    "router": "routers",
    "ucie": "ucie",
    "ucie_conn": "ucie",
    "pcie_ep": "pcie",
    "io_noc": "pcie",
    "switch": "pcie",
}
"""The group of a type of node; any other type is a group of its own."""
_LINKS = "links"
_ORDER = ("hbm", "sram", _LINKS, "routers", "ucie", "pcie", "cpus")
_AT_ONCE = 1 << 10  # components that are named between two reports of progress


@dataclass(frozen=True, slots=True)
class TrafficGroup:
    """Components of one kind, by number as ``ActivityIndex`` has them, each with a
    short name.
    """

    name: str
    components: tuple[int, ...]
    labels: tuple[str, ...]


def traffic_groups(
    trace: Trace, ops: OpIndex, activity: ActivityIndex, progress: Progress
) -> tuple[TrafficGroup, ...]:
    """The groups: memories first, then wires, then CPUs and what else there is."""
    used = activity.used(stage(progress, 0.0, 0.9)).tolist()
    serving = set(ops.components.tolist())
    nodes = len(trace.node_ids)
    found: dict[str, list[int]] = {}
    for component in used:
        if component >= nodes:
            found.setdefault(_LINKS, []).append(component)
        elif component not in serving:
            kind = trace.nodes.type[component]
            found.setdefault(_KINDS.get(kind, kind), []).append(component)
    names = [name for name in _ORDER if name in found]
    names += sorted(set(found) - set(_ORDER))
    groups = []
    for name in names:
        labels: list[str] = []
        for part in parts(len(found[name]), stage(progress, 0.9, 1.0), _AT_ONCE):
            labels += [_short(activity.name(c), c < nodes) for c in found[name][part]]
        groups.append(TrafficGroup(name, tuple(found[name]), tuple(labels)))
    return tuple(groups)


def _short(name: str, is_node: bool) -> str:
    """A name without what both ends of a link share, and with short SIPs and cubes."""
    if is_node:
        return short_name(name)
    src, _, dst = name.partition(" -> ")
    shared = 0
    ours = src.split(".")
    theirs = dst.split(".")
    while shared < min(len(ours), len(theirs)) - 1 and ours[shared] == theirs[shared]:
        shared += 1
    within = short_name(".".join(ours[:shared]))
    here = short_name(".".join(ours[shared:]))
    there = short_name(".".join(theirs[shared:]))
    ends = f"{here}>{there}"
    return f"{within}.{ends}" if within else ends
