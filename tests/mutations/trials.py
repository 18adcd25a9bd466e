"""Runs of a mutant: as it is, and with every DMA op held back; and what they leave."""

from dataclasses import dataclass
from pathlib import Path

import late_bytes
from held import SEEDS  # which topologies name, so it is loaded
from kernel_mutants import write

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
    """What a run left: the trace, and the error that ended it.

    ``end`` is "done", "wrong" if what was verified is not as expected, or the name of
    the error. ``trace`` is None if nothing was recorded.
    """

    end: str
    message: str
    trace: Path | None

    @property
    def has_ended_well(self):
        """Whether no error has ended the run."""
        return self.end in ("done", "wrong")

    def execution(self):
        """What was recorded, to be executed; None of a run that an error ended."""
        if not self.has_ended_well:
            return None
        return late_bytes.Execution(late_bytes.read(self.trace))


class Written:
    """A mutant in a folder, ready to run."""

    def __init__(self, mutant, folder):
        self.mutant = mutant
        self.folder = folder
        self.files = write(mutant, folder)

    def run(self, machine):
        """Run it on a machine as it is, verified."""
        return self._run(machine, {}, "run.msgpack", verify=True)

    def held(self, machine, seed):
        """Run it with every DMA op held back, for as long as the seed says.

        It is not verified: what Phase 2 would leave is ``Execution.in_order``.
        """
        spec = {"components.pe_dma.impl": f"held:Held{seed}"}
        return self._run(machine, spec, "held.msgpack", verify=False)

    def _run(self, machine, spec, name, verify):
        program = self.mutant.program
        params = dict(program.params)
        if program.algorithm:
            params["algorithm"] = "mutant"
        trace = self.folder / name
        trace.unlink(missing_ok=True)
        end = "done"
        message = ""
        try:
            result = run_bench(
                self.files.bench,
                params=params,
                spec=program.machine | MACHINES[machine] | self.mutant.spec | spec,
                ccl=self.files.ccl,
                plugins=self.files.plugins,
                trace=trace,
                verify=verify,
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
        recorded = trace if trace.exists() else None
        return Outcome(end, message, recorded)


# -- witnesses -------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """What shows that the result of a mutant can depend on timing; "" where nothing.

    ``by_runs`` is the first run with delays, by its machine and seed, that leaves
    other bytes or ends otherwise than without, and ``by_bytes`` the first run of which
    the bytes are others if they move late; with the seed -1 it has no delays. Each
    says what differs.
    """

    by_runs: str
    by_bytes: str

    @property
    def is_timed(self):
        """Whether something shows it."""
        return bool(self.by_runs or self.by_bytes)


def truth_of(written, seeds=SEEDS, machines=MACHINES):
    """What runs with delays say of a mutant, on each machine until it is known."""
    by_runs = ""
    by_bytes = ""
    for machine in machines:
        plain = written.run(machine)
        before = plain.execution()
        if not by_bytes:
            by_bytes = _late(before, f"{machine} {-1}", -1)
        for seed in seeds:
            if by_runs and by_bytes:
                break
            held = written.held(machine, seed)
            after = held.execution()
            where = f"{machine} {seed}"
            if not by_runs:
                by_runs = _apart(plain, before, held, after, where)
            if not by_bytes:
                by_bytes = _late(after, where, seed)
    return Truth(by_runs, by_bytes)


def _apart(plain, before, held, after, where):
    """How two runs end or leave other bytes, after ``where``; "" if they do not."""
    if before is None or after is None:
        if held.end == plain.end:
            return ""
        return f"{where}: ends with {held.end}, else with {plain.end}"
    return _different(before.in_order(), after.in_order(), where)


def _late(execution, where, seed):
    """How bytes that move late leave others, after ``where``; "" if they do not."""
    if execution is None:
        return ""
    return _different(execution.in_order(), execution.late(seed), where)


def _different(one, other, where):
    """Which tensor has other bytes, after ``where``; "" if none has."""
    for shard, held in one.items():
        if other[shard] != held:
            return f"{where}: {shard[0]} differs"
    return ""
