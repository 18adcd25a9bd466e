"""The closed forms that re-timing restates, against the components of the model."""

import numpy as np
import pytest

from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd, MathCmd
from kernbench.components.builtin.pe_gemm import first_tile_cycles, streaming_cycles
from kernbench.replay.whatif import weights
from kernbench.replay.whatif.links import LinkTimes
from kernbench.replay.whatif.machine import DramTimes, Machine, Ways
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, load_spec, load_topology
from kernbench.topology.dram import Timing

ONE_CUBE = {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1}
NO_WAYS = Ways(*(np.empty(0, np.int64) for _ in range(5)))
NO_LINKS = LinkTimes(np.empty(0), np.empty(0))
ELSE = {
    "pe.clock_ghz": 1.7,
    "pe.gemm.rows": 48,
    "pe.gemm.overhead_ns": 5.0,
    "pe.math.lanes": 48,
    "pe.math.latency_cycles": 7,
    "pe.tcm.read_bw_gbs": 90.0,
}


def on(formula, *numbers, **spec):
    machine = Machine(NO_WAYS, NO_LINKS, load_spec(overrides=spec))
    return float(formula(machine, *(np.array([n]) for n in numbers))[0])


def served(engine, command, **spec):
    graph = load_topology(overrides=ONE_CUBE | spec)
    simulation = GraphEngine(graph)
    unit = simulation.sim.component(graph.at(0, 0, 0, engine))
    simulation.env.process(unit._forward_txn(simulation.env, command))
    simulation.env.run()
    return simulation.env.now


def region(addr, shape, dtype, size):
    return Region("tcm", addr, shape, dtype, int(np.prod(shape)) * size)


@pytest.mark.parametrize("spec", [{}, ELSE], ids=["shipped", "other"])
@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (17, 130, 70)])
def test_a_dot_takes_as_long_as_in_the_model(m, k, n, dataflow, spec):
    a = region(0, (m, k), "f16", 2)
    b = region(1 << 20, (k, n), "f16", 2)
    out = region(1 << 21, (m, n), "f32", 4)
    command = GemmCmd(a=a, b=b, out=out, m=m, k=k, n=n, dataflow=dataflow)
    flow = weights.DATAFLOWS.index(dataflow)
    rate = weights.RATES.index("f16")
    read = a.nbytes + b.nbytes
    found = on(weights.dot, m, n, k, flow, rate, read, out.nbytes, **spec)
    assert found == served("pe_gemm", command, **spec)


@pytest.mark.parametrize("spec", [{}, ELSE], ids=["shipped", "other"])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (20, 100, 300)])
def test_tiles_take_the_cycles_of_the_model(m, k, n, spec):
    gemm = load_spec(overrides=spec).pe.gemm
    rate = weights.RATES.index("i8")
    numbers = (m, n, k, -1, rate, 0)
    speed = load_spec(overrides=spec).pe.clock_ghz * gemm.rate.i8
    for formula, cycles_of in (
        (weights.cold_tile, first_tile_cycles),
        (weights.streaming_tile, streaming_cycles),
    ):
        cycles = cycles_of(m, k, n, gemm.rows, gemm.cols, gemm.dataflow)
        found = on(formula, *numbers, **spec)
        assert found == pytest.approx(cycles / speed, abs=1 / 1024)


@pytest.mark.parametrize("spec", [{}, ELSE], ids=["shipped", "other"])
@pytest.mark.parametrize(("op", "cost"), [("add", 1), ("exp", 4)])
def test_math_takes_as_long_as_in_the_model(op, cost, spec):
    x = region(0, (50, 13), "f32", 4)
    inputs = (x, x) if op == "add" else (x,)
    out = region(1 << 21, (50, 13), "f32", 4)
    command = MathCmd(op=op, inputs=inputs, out=out)
    rates = 1 << weights.RATES.index("f32")
    numbers = (650, cost, 1, rates, x.nbytes * len(inputs), out.nbytes)
    assert on(weights.math, *numbers, **spec) == served("pe_math", command, **spec)


@pytest.mark.parametrize(
    "spec", [{}, {"hbm.trfc_ns": 500, "tfaw_ns": 60, "trp_ns": 9, "cl_ns": 21}]
)
def test_the_times_of_a_channel_are_those_of_the_model(spec):
    hbm = load_spec(overrides=spec).cube.hbm
    model = Timing(hbm)
    found = DramTimes(hbm)
    assert found.access == model.access
    assert found.read_lead == model.read_lead
    assert found.write_lead == model.write_lead
    assert found.open_row == model.precharge + model.to_column
    assert found.row == model.row_cycle


def test_an_ideal_channel_has_no_rows():
    hbm = load_spec(overrides={"hbm.model": "ideal"}).cube.hbm
    found = DramTimes(hbm)
    assert found.read_lead == TopologySpec().cube.hbm.access_ns
    assert found.open_row == 0
