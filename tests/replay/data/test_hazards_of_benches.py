"""No false alarm: every shipped bench is free of hazards."""

import pytest
from pace import first_fast

from kernbench.benches import SHIPPED
from kernbench.replay import ReplaySession
from kernbench.replay.text import as_text
from kernbench.runtime_api import run_bench
from kernbench.runtime_api.registry import BENCHES
from kernbench.trace import Trace

SMALLER = {"moe_route": {"tokens": 128}}  # than by default, which takes seconds


@pytest.mark.parametrize("name", first_fast(SHIPPED))
def test_a_shipped_bench_has_no_hazard(name, tmp_path):
    params = dict(SMALLER.get(name, {}))
    if "pes" in BENCHES[name].params:
        params["pes"] = 4
    assert run_bench(name, params=params, trace=tmp_path / "t").ok
    answer = ReplaySession(Trace.open(tmp_path / "t")).hazards()
    assert as_text(answer).splitlines()[0] == "none found"
    assert answer.ok
