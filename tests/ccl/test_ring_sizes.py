"""Rings that are too small for their link: the run says so, and how many would do."""

import pytest

from kernbench.errors import TopologyError
from kernbench.runtime_api import run_bench

SMALL = {"sips.count": 1, "cube_mesh.w": 2, "cube_mesh.h": 1, "pes": 1}
SMALL |= {"slices_per_cube": 1}
NBYTES = 256 * 1024
MODULE = "kernbench.ccl.algorithms.intercube_allreduce"


@pytest.fixture
def reduced(tmp_path):
    """reduced(n_elem, **fields): an all-reduce with these fields of ccl.yaml."""

    def reduced(n_elem=NBYTES // 2, spec=SMALL, **fields):
        lines = [f"{name}: {value}" for name, value in fields.items()]
        entry = ", ".join([f"module: {MODULE}", *lines])
        path = tmp_path / "ccl.yaml"
        path.write_text(
            f"defaults: {{algorithm: mine}}\nalgorithms: {{mine: {{{entry}}}}}"
        )
        params = {"n_elem": n_elem}
        return run_bench("ccl_allreduce", ccl=path, spec=spec, params=params)

    return reduced


def slots_said(result):
    """The number of slots in the one note about rings; None without one."""
    notes = [note for note in result.notes if "slots would do" in note]
    assert len(notes) <= 1
    if not notes:
        return None
    return int(notes[0].split(" slots would do")[0].rsplit(" ", 1)[-1])


def hop_ns(result):
    """From the first copy's start to the last slot's end, of the message to the root.

    On the way back the root's store shares its link.
    """
    copies = [
        record
        for record in result.op_log
        if record.op_name == "ipcq_copy" and ".cube1." in record.component_id
    ]
    return max(r.t_end for r in copies) - min(r.t_start for r in copies)


@pytest.mark.slow
@pytest.mark.parametrize("slot_bytes", [2048, 4096])
def test_so_many_slots_as_it_says_keep_the_link_busy_and_one_less_does_not(
    reduced, slot_bytes
):
    few = reduced(slots=2, slot_bytes=slot_bytes)
    slots = slots_said(few)
    ideal_ns = NBYTES / 128  # a UCIe connection
    took = {
        count: hop_ns(reduced(slots=count, slot_bytes=slot_bytes))
        for count in (slots - 1, slots, 4 * slots)
    }
    first_ns = 62.5  # of the first slot: its way, set-up apart, and its bytes
    assert took[slots] == took[4 * slots]
    assert took[slots] == pytest.approx(ideal_ns, abs=first_ns)
    assert took[slots - 1] > took[slots] + first_ns


@pytest.mark.slow
def test_a_ring_that_is_large_enough_is_not_mentioned(reduced):
    slots = slots_said(reduced(slots=2, slot_bytes=1024))
    assert slots_said(reduced(slots=slots - 1, slot_bytes=1024)) == slots
    assert slots_said(reduced(slots=slots, slot_bytes=1024)) is None


@pytest.mark.slow
def test_a_payload_that_fits_the_ring_is_not_mentioned(reduced):
    assert slots_said(reduced(n_elem=1024, slots=2, slot_bytes=1024)) is None
    assert slots_said(reduced(n_elem=1025, slots=2, slot_bytes=1024)) is not None


@pytest.mark.slow
def test_it_is_said_once_of_all_rings(reduced):
    spec = SMALL | {"cube_mesh.h": 2}
    result = reduced(slots=2, slot_bytes=1024, spec=spec)
    (note,) = [note for note in result.notes if "slots would do" in note]
    assert " and 5 more" in note
    assert note in result.as_text()
    assert note in result.summary()["notes"]


def test_the_software_of_a_call_delays_its_launch_by_as_much(reduced):
    free = reduced(n_elem=64)
    slow = reduced(n_elem=64, call_overhead_ns=1234.5)
    assert slow.end_ns - free.end_ns == pytest.approx(1234.5, abs=1e-6)
    assert slow.ok


@pytest.mark.parametrize("value", ["-1", ".nan", ".inf", "fast", "true"])
def test_a_software_cost_that_makes_no_sense_is_refused(reduced, value):
    problem = r"mine\.call_overhead_ns: must be a number from 0 to"
    with pytest.raises(TopologyError, match=problem):
        reduced(call_overhead_ns=value)
