"""The way of a launch: which nodes have it served, one behind the other.

It goes from the pcie_ep of a SIP to its io_cpu, to the m_cpu of each cube, and to the
pe_cpu of each PE that takes part. Components say how long it takes at each; that it
goes on is not theirs to do.
"""

from collections.abc import Callable

from kernbench.common.messages import LaunchMsg, Transaction
from kernbench.components.base import Process, Sim
from kernbench.errors import KernbenchError
from kernbench.topology.graph import Node

LAUNCH_BYTES = 64
"""Bytes of the message that a launch is."""


def serve_launch(sim: Sim, node_id: str, msg: LaunchMsg) -> Process:
    """Have a launch served at a node, then at all that it is handed on to from there.

    The process ends when it has been handed on; the others go on by themselves.
    KernbenchError if a pe_cpu has ended without having run the kernel.
    """
    component = sim.component(node_id)
    yield from component._forward_txn(sim.env, msg)
    node = component.node
    if node.type == "pe_cpu":
        _check_that_it_ran(node_id, type(component).__name__, msg)
        return
    for target in _TARGETS[node.type](sim, node, msg):
        turn = sim.env.node_turn(sim.graph.nodes[target].place)
        sim.env.process_at(turn, _deliver(sim, node_id, target, msg))


def _deliver(sim: Sim, src: str, dst: str, msg: LaunchMsg) -> Process:
    """Carry a launch from one node to another, and have it served there."""
    path = tuple(sim.router.find_node_path(src, dst))
    yield from sim.transfer(Transaction(path, LAUNCH_BYTES, msg))
    yield from serve_launch(sim, dst, msg)


def _check_that_it_ran(node_id: str, model: str, msg: LaunchMsg) -> None:
    """KernbenchError if the model of a pe_cpu only took time."""
    if node_id not in msg.ran:
        raise KernbenchError(
            f"{node_id}: run of {model} ended without running kernel {msg.name}; take "
            "what time you like, and also `yield from super().run(env, msg)`"
        )


def _io_cpu(sim: Sim, node: Node, msg: LaunchMsg) -> list[str]:
    return [sim.resolver.find_io_cpu(node.sip)]


def _m_cpus(sim: Sim, node: Node, msg: LaunchMsg) -> list[str]:
    cubes = {cube for sip, cube, _ in msg.pes if sip == node.sip}
    return [sim.resolver.find_m_cpu(node.sip, cube) for cube in sorted(cubes)]


def _pe_cpus(sim: Sim, node: Node, msg: LaunchMsg) -> list[str]:
    here = (node.sip, node.cube)
    return [sim.graph.at(*pe, "pe_cpu") for pe in msg.pes if pe[:2] == here]


_TARGETS: dict[str, Callable[[Sim, Node, LaunchMsg], list[str]]] = {
    "pcie_ep": _io_cpu,
    "io_cpu": _m_cpus,
    "m_cpu": _pe_cpus,
}
"""By the type of a node that a launch comes through: the nodes that are next."""
