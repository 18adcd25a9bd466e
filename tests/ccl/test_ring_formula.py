"""An all-reduce on a ring of SIPs of one cube each: 2 (n - 1) (alpha + S / nB), exact.

All hops of this ring are alike: PE to pcie_ep, over the switch, and in again. alpha is
added up here by hand, from the fields of the machine.
"""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import ccl_machines
import numpy as np
import pytest

DEFAULT_MACHINE = ccl_machines.machine
PCIE_GBS = 32.0  # the slowest link of a hop
TCM_GBS = 1024.0  # at which a slot is copied out, once all of it is there
SETUP = 20  # ns of the DMA
ISSUE = 1  # ns of a tl call
ADD = 1 + 4  # ns: one pass of the lanes, and the depth of the pipeline


def spec_of(sips):
    """The machine of the ring; its lanes add any chunk in one pass."""
    spec = DEFAULT_MACHINE(sips, mesh=(1, 1))
    pe = replace(
        spec.pe,
        tcm=replace(spec.pe.tcm, read_bw_gbs=TCM_GBS, write_bw_gbs=TCM_GBS),
        math=replace(spec.pe.math, lanes=1 << 20),
        dma=replace(spec.pe.dma, burst_bytes=1 << 20),
    )
    system = replace(spec.system, pcie_bw_gbs=PCIE_GBS, ns_per_mm=0.0)
    return replace(spec, pe=pe, system=system)


def header_ns(graph, path):
    """Overheads of the nodes behind the first; the wires of this machine take none."""
    return sum(graph.nodes[dst].overhead_ns for _, dst in pairwise(path))


@pytest.fixture
def reduced(layout_cache, monkeypatch):
    """reduced(sips, n_elem): the machine, and the log of an all-reduce on it."""

    def reduced(sips, n_elem, slot_bytes=None):
        monkeypatch.setattr(ccl_machines, "machine", lambda *_: spec_of(sips))
        chunk = n_elem * 4 // sips
        data = np.ones((sips, 1, n_elem))
        args = (data, "f32", layout_cache, "ring_chunked_allreduce", "ring_1d", (1, 1))
        run = ccl_machines.timed(*args, slot_bytes=slot_bytes or chunk, slots=2)
        log = run.engine.op_log
        loaded = max(r.t_end for r in log if r.op_name == "dma_read")
        stored = min(r.t_start for r in log if r.op_name == "dma_write")
        return SimpleNamespace(ns=stored - loaded, engine=run.engine)

    return reduced


@pytest.mark.parametrize("sips", [2, 3, 4, 8])
@pytest.mark.parametrize("kib", [3, 24, 96, 384])
def test_a_ring_takes_two_n_minus_one_steps_of_alpha_and_bytes(reduced, sips, kib):
    nbytes = kib * 1024
    run = reduced(sips, nbytes // 4)
    dma = "sip{}.cube0.pe0.pe_dma"
    tcm = "sip{}.cube0.pe0.pe_tcm"
    path = run.engine.sim.router.route("pe", dma.format(0), tcm.format(1))
    hop = ISSUE + SETUP + header_ns(run.engine.graph, path)
    both_read_ns = 2 * nbytes / sips / TCM_GBS
    add = max(ADD, both_read_ns)
    alpha = hop + (ISSUE + add) / 2  # half of the steps reduce
    inverse_bandwidth = 1 / PCIE_GBS + 1 / TCM_GBS
    steps = 2 * (sips - 1)
    formula = steps * (alpha + nbytes / sips * inverse_bandwidth)
    formula += ISSUE  # of the store
    assert run.ns == pytest.approx(formula, abs=1e-6, rel=0)


@pytest.mark.parametrize("slot_bytes", [256, 4096, 12288])
def test_the_chunks_travel_in_pieces_of_a_slot(reduced, slot_bytes):
    """A slot larger or smaller than 4096 bytes is filled: copies are as large as it."""
    run = reduced(2, 2 * 24576 // 4, slot_bytes=slot_bytes)
    sizes = [r.params["nbytes"] for r in run.engine.op_log if r.op_name == "ipcq_copy"]
    assert sizes == [slot_bytes] * (2 * 2 * 24576 // slot_bytes)
    added = [r.params["shape_out"] for r in run.engine.op_log if r.op_name == "add"]
    assert added == [(slot_bytes // 4,)] * (2 * 24576 // slot_bytes)
