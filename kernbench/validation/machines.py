"""Small machines to measure on, and commands that their own components serve."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernbench.common.messages import MsgBase, Region
from kernbench.common.pe_commands import DmaReadCmd, DmaWriteCmd
from kernbench.common.phys_addr import PhysAddr
from kernbench.components.base import Process
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologyGraph, TopologySpec
from kernbench.topology.graph import Place
from kernbench.topology.spec import CubeMeshSpec, SipsSpec


def one_sip(w: int = 1, h: int = 1, **cube: Any) -> TopologySpec:
    """One SIP of ``w`` x ``h`` cubes, in which sections of ``cube`` are replaced."""
    spec = TopologySpec()
    return replace(
        spec,
        system=replace(spec.system, sips=SipsSpec(count=1)),
        sip=replace(spec.sip, cube_mesh=CubeMeshSpec(w, h)),
        cube=replace(spec.cube, **cube),
    )


def served(
    graph: TopologyGraph, engine: str, commands: Sequence[tuple[Place, MsgBase]]
) -> list[float]:
    """When each command had ended, in ns.

    All are given at 0, to the engine of that name of their PEs.
    """
    machine = GraphEngine(graph, op_logger=None)
    env = machine.env
    ends = [0.0] * len(commands)

    def serve(i: int, place: Place, command: MsgBase) -> Process:
        component = machine.sim.component(graph.at(*place, engine))
        yield from component._forward_txn(env, command)
        ends[i] = env.now

    for i, (place, command) in enumerate(commands):
        env.process(serve(i, place, command))
    env.run()
    return ends


def slice_address(graph: TopologyGraph, place: Place, offset: int = 0) -> int:
    """The address of a byte of a PE's HBM slice."""
    slice_bytes = graph.spec.cube.memory_map.slice_bytes
    return PhysAddr.pe_hbm_addr(*place, offset, slice_bytes).encode()


def read(graph: TopologyGraph, place: Place, nbytes: int, offset: int = 0) -> MsgBase:
    """A DMA read of a PE's HBM slice."""
    addr = slice_address(graph, place, offset)
    src = Region("hbm", addr, (nbytes,), "u8", nbytes)
    return DmaReadCmd(src=src, dst=replace(src, space="tcm", addr=0), handle_id="h")


def write(graph: TopologyGraph, place: Place, nbytes: int, offset: int = 0) -> MsgBase:
    """A DMA write to a PE's HBM slice."""
    addr = slice_address(graph, place, offset)
    src = Region("tcm", 0, (nbytes,), "u8", nbytes)
    return DmaWriteCmd(src=src, dst_addr=addr, handle_id="h")
