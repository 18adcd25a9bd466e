"""Runs of a mutant: as it is, and with every DMA op held back; and what they leave."""

from dataclasses import dataclass
from pathlib import Path

import late_bytes
from held import SEEDS  # which topologies name, so it is loaded
from mutants import write

from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api import run_bench

MACHINES = {
    "shipped": {},
    "slow": {
        "pe.clock_ghz": 0.5,
        "pe.dma.setup_ns": 40,
        "cube.router.overhead_ns": 4,
        "cube.ucie.overhead_ns": 16,
        "cube.hbm.controller_ns": 6,
        "cube.hbm.cl_ns": 28,
        "cube.hbm.trcd_ns": 28,
        "sip.io.pcie_ep_overhead_ns": 300,
    },
    "narrow": {
        "pe.dma.outstanding": 2,
        "pe.dma.burst_bytes": 64,
        "pe.dma.to_router_bw_gbs": 32,
        "cube.router.link_bw_gbs": 32,
        "cube.ucie.bw_gbs": 8,
        "cube.ucie.connections_per_side": 1,
        "cube.hbm.channels": 2,
        "cube.hbm.channel_bw_gbs": 8,
        "pe.math.lanes": 4,
        "pe.gemm.rows": 4,
        "pe.gemm.cols": 4,
    },
}
"""Fields of the topology: ours; slow in all that is latency; and narrow."""

MAX_OPS = 20_000


@dataclass(frozen=True)
class Outcome:
    """What a run left: the error that ended it, or the bytes of all tensors.

    ``end`` is "right", "wrong", or the name of the error. ``trace`` is None if nothing
    was recorded.
    """

    end: str
    message: str
    tensors: dict
    trace: Path | None


class Written:
    """A mutant in a folder of its own, ready to run on one machine."""

    def __init__(self, mutant, machine, folder):
        self.mutant = mutant
        self.folder = folder
        self.spec = mutant.program.machine | MACHINES[machine] | mutant.spec
        self.files = write(mutant, folder)

    def run(self, seed=None):
        """Run it, with its DMA ops held back as that seed says; None: not at all."""
        spec = dict(self.spec)
        name = "run.msgpack"
        if seed is not None:
            spec["components.pe_dma.impl"] = f"held:Held{seed}"
            name = "held.msgpack"
        trace = self.folder / name
        trace.unlink(missing_ok=True)
        end = "right"
        message = ""
        tensors = {}
        try:
            result = run_bench(
                self.files.bench,
                params=self.mutant.program.params | self._chosen(),
                spec=spec,
                ccl=self.files.ccl,
                plugins=self.files.plugins,
                trace=trace,
                max_ops=MAX_OPS,
            )
        except UsageError:
            raise  # the mistake is ours
        except KernbenchError as error:
            end = type(error).__name__
            message = str(error)
        else:
            if not result.ok:
                end = "wrong"
                message = result.error
            tensors = _bytes_of(result.store)
        recorded = trace if trace.exists() else None
        return Outcome(end, message, tensors, recorded)

    def _chosen(self):
        """The parameter that chooses the algorithm that has the mistake."""
        if self.mutant.program.algorithm:
            return {"algorithm": "mutant"}
        return {}


def _bytes_of(store):
    """All bytes of HBM that were written, from where on: what lies together is one."""
    found = []
    for addr, array in store.extents("hbm"):
        raw = array.tobytes()
        if found and found[-1][0] + len(found[-1][1]) == addr:
            raw = found[-1][1] + raw
            addr, _ = found.pop()
        found.append((addr, raw))
    return dict(found)


def first_difference(one, other):
    """The address of the first byte that two runs leave otherwise; None if none is."""
    for addr in sorted({*one, *other}):
        before = one.get(addr, b"")
        after = other.get(addr, b"")
        if before != after:
            for place, (x, y) in enumerate(zip(before, after, strict=False)):
                if x != y:
                    return addr + place
            return addr + min(len(before), len(after))
    return None


# -- witnesses -------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """What runs say of a mutant on one machine.

    ``end`` is how it ends if nothing is held back. ``by_runs`` is the first seed with
    which it leaves other bytes or ends otherwise, and ``by_bytes`` the first with which
    its bytes differ if they move late; None if none of SEEDS does, -1 is without
    delays. ``what`` says what differs.
    """

    end: str
    by_runs: int | None
    by_bytes: int | None
    what: str

    @property
    def is_timed(self):
        """Whether the result can depend on timing."""
        return self.by_runs is not None or self.by_bytes is not None


def truth_of(written, plain, seeds=SEEDS):
    """What runs with delays say of a mutant that without them has left ``plain``."""
    by_runs = None
    by_bytes = None
    what = []
    late = _late_difference(plain, -1)
    if late:
        by_bytes = -1
        what.append(late)
    for seed in seeds:
        if by_runs is not None and by_bytes is not None:
            break
        held = written.run(seed)
        if by_runs is None:
            difference = _difference(plain, held)
            if difference:
                by_runs = seed
                what.append(difference)
        if by_bytes is None:
            late = _late_difference(held, seed)
            if late:
                by_bytes = seed
                what.append(late)
    return Truth(plain.end, by_runs, by_bytes, "; ".join(what))


def _difference(plain, held):
    """How two runs end differently; "" if they do not."""
    ends = {"right": "data", "wrong": "data"}
    before = ends.get(plain.end, plain.end)
    after = ends.get(held.end, held.end)
    if before != after:
        return f"ends with {after} instead of {before}"
    at = first_difference(plain.tensors, held.tensors)
    return "" if at is None else f"byte {at:#x} differs"


def _late_difference(outcome, seed):
    """Which tensor of a run has other bytes if they move late; "" if none has."""
    if outcome.end not in ("right", "wrong"):
        return ""
    execution = late_bytes.Execution(late_bytes.read(outcome.trace))
    in_order = execution.in_order()
    late = execution.late(seed)
    for where, held in in_order.items():
        if late[where] != held:
            return f"{where[0]} differs if bytes move late"
    return ""
