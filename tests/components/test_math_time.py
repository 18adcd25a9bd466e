"""MATH by dtype, and at the speed of the TCM (docs/machine.md, "MATH"); 64 lanes and a
latency of 4 cycles at 1 GHz.
"""

from dataclasses import replace

import pytest

from kernbench.common.dtypes import DTYPES
from kernbench.common.messages import Region
from kernbench.common.pe_commands import GemmCmd, MathCmd
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec, SipsSpec

PE = (0, 0, 0)
ELEMENTS = 6400
CYCLES = 100 + 4


@pytest.fixture
def machine(layout_cache):
    """machine(section of the PE, …) -> a graph of one cube."""

    def machine(**pe):
        spec = TopologySpec()
        sections = {
            name: replace(getattr(spec.pe, name), **fields)
            for name, fields in pe.items()
        }
        return build_topology(
            replace(
                spec,
                system=replace(spec.system, sips=SipsSpec(count=1)),
                sip=replace(spec.sip, cube_mesh=CubeMeshSpec(1, 1)),
                pe=replace(spec.pe, **sections),
            ),
            layout_cache,
        )

    return machine


def tensor(dtype, at=0):
    return Region("tcm", at, (ELEMENTS,), dtype, ELEMENTS * DTYPES[dtype].itemsize)


def op(name, out, *inputs):
    return MathCmd(
        op=name,
        inputs=tuple(tensor(dtype, (i + 1) << 17) for i, dtype in enumerate(inputs)),
        out=tensor(out),
    )


def serve(graph, *given):
    """(t_start, t_end) of commands, each with its engine, all given at 0."""
    engine = GraphEngine(graph)
    for name, message in given:
        server = engine.sim.component(graph.at(*PE, name))
        engine.env.process(server._forward_txn(engine.env, message))
    engine.env.run()
    return [(record.t_start, record.t_end) for record in engine.op_log]


def took(graph, message):
    ((start, end),) = serve(graph, ("pe_math", message))
    return end - start


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_eight_bytes_go_at_half_the_speed(machine, dtype):
    slow = dtype in ("f64", "i64", "u64")
    assert took(machine(), op("neg", dtype, dtype)) == (204 if slow else 104)


def test_the_slowest_type_of_an_op_counts(machine):
    assert took(machine(), op("add", "f64", "f32", "f64")) == 204
    assert took(machine(), op("neg", "f32", "f64")) == 204


def test_a_rate_can_be_set_and_the_pipeline_stays_as_deep(machine):
    rate = replace(TopologySpec().pe.math.rate, f16=2.0)
    assert took(machine(math={"rate": rate}), op("neg", "f16", "f16")) == 50 + 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["neg", "add"])
def test_at_the_defaults_the_tcm_is_quick_enough(machine, dtype, name):
    inputs = [dtype] * (2 if name == "add" else 1)
    fast = machine(tcm={"read_bw_gbs": 1e6, "write_bw_gbs": 1e6})
    message = op(name, dtype, *inputs)
    assert took(machine(), message) == took(fast, op(name, dtype, *inputs))


def test_an_op_takes_as_long_as_its_operands_or_its_result_stream(machine):
    nbytes = ELEMENTS * 4
    read = machine(tcm={"read_bw_gbs": 64.0})
    assert took(read, op("add", "f32", "f32", "f32")) == 2 * nbytes / 64
    write = machine(tcm={"write_bw_gbs": 64.0})
    assert took(write, op("add", "f32", "f32", "f32")) == nbytes / 64


def test_two_engines_queue_on_the_channel_that_they_read(machine):
    def region(at):
        return Region("tcm", at, (64, 64), "f16", 8192)

    dot = GemmCmd(a=region(0), b=region(8192), out=region(1 << 16), m=64, k=64, n=64)
    graph = machine(tcm={"read_bw_gbs": 16.0})
    times = serve(graph, ("pe_gemm", dot), ("pe_math", op("neg", "f32", "f32")))
    by_end = sorted(end for _, end in times)
    first = 2 * 8192 / 16
    assert by_end == [first, first + ELEMENTS * 4 / 16]


def test_what_reads_nothing_does_not_wait_for_the_read_channel(machine):
    graph = machine(tcm={"read_bw_gbs": 16.0})
    times = serve(
        graph, ("pe_math", op("neg", "f32", "f32")), ("pe_math", op("full", "f32"))
    )
    assert [end - start for start, end in times] == [1600, 104]
