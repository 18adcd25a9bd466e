"""Tensors of more axes than a trace has columns for."""

import numpy as np
import pytest

from kernbench.replay import ReplaySession
from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

BENCH = """
from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy

def kernel(x_ptr, y_ptr, tl):
    piece = tl.program_id(0) * 24 * 4
    x = tl.load(x_ptr + piece, (2, 3, 2, 2), "f32")
    tl.store(y_ptr + piece, x + 1.0)

@bench(name="deep", description="a tensor of four axes over four PEs")
def run(torch):
    dp = DPPolicy(pe="POLICY", num_pes=4, num_cubes=1)
    values = torch.rng.standard_normal(SHAPE).astype("f4")
    x = torch.tensor(values, dp=dp, name="x")
    y = torch.empty(SHAPE, "f32", dp=dp, name="y")
    torch.launch("kernel", kernel, x, y)
    torch.expect(y, values + 1)
"""
SHAPES = {"column_wise": (2, 3, 2, 8), "row_wise": (8, 3, 2, 2)}


@pytest.fixture(params=SHAPES)
def deep(request, tmp_path):
    """The session on that bench, and what y is to be."""
    shape = SHAPES[request.param]
    text = BENCH.replace("POLICY", request.param).replace("SHAPE", str(shape))
    (tmp_path / "deep.py").write_text(text)
    assert run_bench(str(tmp_path / "deep.py"), trace=tmp_path / "t").ok
    values = np.random.default_rng(0).standard_normal(shape).astype("f4")
    return ReplaySession(Trace.open(tmp_path / "t")), values + np.float32(1)


def test_a_tensor_of_four_axes_is_put_together_of_all_its_shards(deep):
    session, wanted = deep
    session.goto(len(session) - 1)
    view = session.run_line("memory y")
    first, *_, last = wanted.shape
    assert view.values.shape == (first, 6, last)  # 3 x 2 between the first and the last
    assert view.values.ravel().tolist() == wanted.ravel().tolist()
    assert not view.note  # no part of it is taken for a copy of another


def test_an_element_of_it_was_written_by_the_pe_that_has_it(deep):
    session, wanted = deep
    session.goto(len(session) - 1)
    first, *_, last = wanted.shape
    (row,) = session.run_line(f"who-wrote y[{first - 1}, 5, {last - 1}]").rows
    assert row.op.component == "sip0.cube0.pe3.pe_dma"


def test_it_is_compared_with_what_the_bench_expects(deep):
    session, wanted = deep
    assert session.verify().ok
    diff = session.output("y", len(session) - 1)
    assert diff.expected.ravel().tolist() == pytest.approx(wanted.ravel().tolist())
    assert diff.row.ok
    assert diff.row.elements == 96
