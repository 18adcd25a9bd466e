"""The bundled trace is what the present code records."""

from pathlib import Path

import numpy as np

from kernbench.runtime_api import run_bench
from kernbench.trace import Trace

TRACES = Path(__file__).parents[1] / "traces"


def test_the_bundled_matmul_is_what_its_command_records_today(tmp_path):
    run_bench("matmul", params={"m": 128, "k": 128, "n": 128, "pes": 8}, trace=tmp_path / "t")
    fresh, shipped = Trace.open(tmp_path / "t"), Trace.open(TRACES / "matmul.msgpack")
    for name in ("header", "end", "node_ids", "texts", "launches", "allocs"):
        assert getattr(fresh, name) == getattr(shipped, name), name
    assert len(fresh.ops) == len(shipped.ops)
    for i in range(len(fresh.ops)):
        a, b, row = fresh.ops[i], shipped.ops[i], int(fresh.order[i])
        assert (a.t_start, a.t_end, a.component_id, a.op_name, a.dependency_ids) == (
            b.t_start,
            b.t_end,
            b.component_id,
            b.op_name,
            b.dependency_ids,
        )
        assert fresh.transfers_of(row) == shipped.transfers_of(row)
        assert fresh.waits_of(row) == shipped.waits_of(row)
        np.testing.assert_equal(a.params, b.params)


def test_the_bundled_matmul_is_small_sound_and_verified():
    trace = Trace.open(TRACES / "matmul.msgpack")
    assert trace.check() == []
    assert trace.complete
    assert trace.verify_report["ok"] is True
    assert (TRACES / "matmul.msgpack").stat().st_size < 1_000_000
