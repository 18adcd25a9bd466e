"""``torch.multiprocessing``: a rank is a SIP, and a greenlet.

Only the scheduler here simulates. A rank runs until it parks: to read memory, to state
what it expects, at a barrier. When every rank has parked or ended, the machine is
simulated until nothing more can happen; those whose own host stream is empty then go
on. So a rank may wait for what another has yet to launch.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import greenlet

from kernbench.common.user_code import called, located
from kernbench.errors import KernbenchError, UsageError
from kernbench.sim_engine.engine import HOST, GraphEngine


class Multiprocessing:
    """The ranks of one engine.

    ``nprocs`` is how many there are now, 0 outside of ``spawn``. ``joined`` are the
    streams that have called ``init_process_group``; a rank leaves when it ends.
    """

    def __init__(self, engine: GraphEngine) -> None:
        self._engine = engine
        self.nprocs = 0
        self.joined: set[int] = set()

    def spawn(
        self,
        fn: Callable[..., None],
        args: Sequence[Any] = (),
        nprocs: int | None = None,
    ) -> None:
        """Call ``fn(rank, *args)`` in every rank, and simulate all that they ask for.

        ``nprocs`` defaults to the number of SIPs; UsageError if there are fewer, or in
        a rank. The first rank that raises stops the others, and is named. DeadlockError
        lists what can never end.
        """
        sips = self._engine.graph.spec.system.sips.count
        if nprocs is None:
            nprocs = sips
        if self.nprocs:
            raise UsageError(
                "spawn: called in a rank; spawn once, from the bench itself"
            )
        if not 1 <= nprocs <= sips:
            raise UsageError(
                f"spawn: nprocs={nprocs}; a rank is a SIP, so 1 to {sips} are valid"
            )
        ranks = [
            greenlet.greenlet(partial(called, fn, rank, *args))
            for rank in range(nprocs)
        ]
        self.nprocs = nprocs
        try:
            self._schedule(ranks, fn)
            self._engine.drain()
        finally:
            self._stop(ranks)
            self.nprocs = 0
            self.joined &= {HOST}

    def drain(self) -> None:
        """Simulate until the host stream of the caller is empty.

        A rank parks until then.
        """
        if self._engine.stream == HOST:
            self._engine.drain()
        else:
            scheduler = greenlet.getcurrent().parent
            assert scheduler is not None
            scheduler.switch()

    def _schedule(
        self, ranks: Sequence[greenlet.greenlet], fn: Callable[..., None]
    ) -> None:
        """Resume ranks and simulate in turn, until none can go on."""
        ready = list(range(len(ranks)))
        while ready:
            for rank in ready:
                self._resume(rank, ranks[rank], fn)
            self._engine.simulate()
            ready = [
                rank
                for rank, process in enumerate(ranks)
                if not process.dead and not self._engine.is_busy(rank)
            ]

    def _resume(
        self, rank: int, process: greenlet.greenlet, fn: Callable[..., None]
    ) -> None:
        """Let a rank go on until it parks; what it raises names it."""
        self._engine.stream = rank
        try:
            got = process.switch()
            if isinstance(got, greenlet.GreenletExit):
                raise got  # a greenlet that it ends gives it back
        except KeyboardInterrupt:
            raise
        except KernbenchError as error:
            raise located(f"rank {rank}", error, KernbenchError) from error
        except BaseException as error:
            site = self._engine.sim.sites.of(error.__traceback__, fn)
            where = f"rank {rank} at {site.file}:{site.line}"
            raise located(where, error, KernbenchError) from error
        finally:
            self._engine.stream = HOST

    def _stop(self, ranks: Sequence[greenlet.greenlet]) -> None:
        """Stop the ranks that have not ended; what they do then hides no error."""
        for rank, process in enumerate(ranks):
            if not process.dead:
                with suppress(BaseException):
                    self._engine.stream = rank
                    process.throw()
        self._engine.stream = HOST
