"""Which fields of the machine a prediction knows, and what it says of the others."""

import numpy as np
import pytest

from kernbench.errors import KernbenchError, UsageError
from kernbench.replay.whatif.changed_machines import OF_LINKS
from kernbench.replay.whatif.fields import (
    Change,
    all_fields,
    parse_change,
    value_of,
    with_changes,
)
from kernbench.replay.whatif.index import WhatIfIndex
from kernbench.replay.whatif.links import links_with, recorded_links
from kernbench.runtime_api import run_bench
from kernbench.topology import recorded_spec
from kernbench.topology.spec import TopologySpec
from kernbench.trace import Trace
from kernbench.trace.cut import cut


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("fields") / "softmax.msgpack"
    run_bench("softmax", params={"m": 16, "n": 32, "pes": 1}, trace=found)
    return found


@pytest.fixture(scope="module")
def index(path):
    return WhatIfIndex(Trace.open(path))


def test_any_certain_end_of_a_path_names_a_field():
    change = parse_change("channel_bw_gbs=64")
    assert change.field.path == "cube.hbm.channel_bw_gbs"
    assert change.value == 64.0
    assert parse_change("lanes=32").value == 32


def test_an_unknown_field_names_those_near_it():
    with pytest.raises(UsageError, match=r"pe\.clock_ghz"):
        parse_change("pe.clock_gz=2")
    with pytest.raises(UsageError, match=r"channel_bw_gbs"):
        parse_change("chanel_bw_gbs=2")


def test_an_end_that_is_not_certain_names_all_it_could_be():
    with pytest.raises(UsageError, match=r"cube\.router\.overhead_ns"):
        parse_change("overhead_ns=2")


@pytest.mark.parametrize("text", ["", "pe.clock_ghz", "=2", "pe.clock_ghz="])
def test_what_is_no_field_and_value_says_what_is(text):
    with pytest.raises(UsageError, match="FIELD=VALUE"):
        parse_change(text)


def test_a_value_that_no_machine_has_is_refused():
    with pytest.raises(UsageError, match=r"0\.001 to 1000"):
        with_changes(TopologySpec(), (parse_change("pe.clock_ghz=-1"),))
    with pytest.raises(UsageError, match="whole number"):
        with_changes(TopologySpec(), (parse_change("lanes=1.5"),))


@pytest.mark.parametrize("text", ["energy.tcm_pj_byte=9", "sram.size_mib=64"])
def test_a_field_without_time_changes_nothing_and_says_why(index, text):
    answer = index.predict((text,))
    assert answer.predicted_ns == answer.end_ns
    assert answer.sure
    assert "changes nothing: " in answer.why


def test_a_field_that_nothing_here_waits_for_says_so(index):
    answer = index.predict(("cube.sram.access_ns=99",))
    assert answer.predicted_ns == answer.end_ns
    assert "nothing in this run waits for it" in answer.why


@pytest.mark.parametrize(
    "text", ["hbm.channels=4", "outstanding=2", "tile.window=2", "sips.count=3"]
)
def test_what_changes_order_or_structure_is_not_sure_and_says_why(index, text):
    answer = index.predict((text,))
    assert not answer.sure
    assert "changes" in answer.why


def test_a_trace_that_was_cut_is_refused_with_the_reason(path, tmp_path):
    part = tmp_path / "part.msgpack"
    cut(path, part, 0.0, Trace.open(path).end_ns / 2)
    with pytest.raises(KernbenchError, match="cut"):
        WhatIfIndex(Trace.open(part)).predict(("pe.clock_ghz=2",))


def test_twice_as_fast_is_more_of_a_rate_and_less_of_a_time():
    fields = all_fields()
    assert fields["pe.clock_ghz"].faster(1.0) == 2.0
    assert fields["pe.dma.setup_ns"].faster(20.0) == 10.0
    assert fields["pe.math.latency_cycles"].faster(4) == 2
    assert fields["pe.cpu.issue_cycles"].faster(1) is None
    assert fields["pe.dma.setup_ns"].free(20.0) == 0
    assert fields["pe.gemm.rate.f16"].free(1.0) == 1000.0


@pytest.mark.slow
def test_the_profile_has_fields_and_lines_the_largest_gain_first(index):
    profile = index.profile()
    ends = [gain.predicted_ns for gain in profile.gains]
    assert ends == sorted(ends)
    assert {gain.kind for gain in profile.gains} == {"field", "line"}
    fields = [gain for gain in profile.gains if gain.kind == "field"]
    assert len(fields) > 20
    for gain in fields[::8]:
        answer = index.predict((gain.change,))
        assert answer.predicted_ns == gain.predicted_ns
        assert answer.sure == gain.sure


@pytest.mark.slow
def test_fields_that_no_link_depends_on_leave_links_as_they_are(path):
    trace = Trace.open(path)
    spec = recorded_spec(trace.spec)
    recorded = recorded_links(trace)
    others = [
        field
        for field in all_fields().values()
        if field.role == "timed" and not field.path.startswith(OF_LINKS)
    ]
    for field in others[::6]:
        better = field.free(value_of(spec, field.path))
        if better is None:
            continue
        change = Change(field, better, field.path)
        links = links_with(trace, with_changes(spec, (change,)))
        assert links is not None
        assert np.array_equal(links.speed, recorded.speed)
        assert np.array_equal(links.header, recorded.header)
