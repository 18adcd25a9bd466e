"""No false alarm: every shipped bench is free of hazards."""

import pytest

from kernbench.benches import SHIPPED
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.registry import BENCHES
from kernbench.trace import Trace


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_bench_has_no_hazard(name, tmp_path):
    params = {"pes": 4} if "pes" in BENCHES[name].params else {}
    assert run_bench(name, params=params, trace=tmp_path / "t").ok
    answer = ReplaySession(Trace.open(tmp_path / "t")).hazards()
    assert as_text(answer) == "none found"
