"""Joins kernel greenlets to SimPy (ADR-0020 D3): a tl call switches here, time passes, on it goes.

Makes no log record: the hooks of the components do.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import greenlet

from kernbench.common.messages import NO_CMD, MsgBase, Waiter
from kernbench.common.pe_commands import RecvCmd, SendCmd
from kernbench.errors import KernelError
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.triton_emu.calls import Call, KernelContext, overlap
from kernbench.triton_emu.tl_context import TLContext


class KernelRunner:
    """Runs one kernel on one PE."""

    def __init__(self, ctx: KernelContext) -> None:
        self.ctx = ctx
        self._unstarted: list[MsgBase] = []
        self._calls: list[Call] = []
        self._resumed_by: MsgBase | None = None

    def run(
        self,
        env: Any,
        kernel_fn: Callable[..., None],
        args: tuple[Any, ...],
        store: MemoryStore,
    ) -> Generator[Any, Any, None]:
        """Run the kernel and all that it issued to the end; KernelError wraps what it raises."""
        tl = TLContext(self.ctx, store)
        issue_ns = self.ctx.spec.cpu.issue_cycles / self.ctx.spec.clock_ghz
        child = greenlet.greenlet(lambda: kernel_fn(*args, tl=tl))
        call: Call | None = self._resume(child, None)
        while call is not None:
            t_issue = env.now
            self._note_waiting(call, t_issue)
            yield env.timeout(issue_ns)
            yield from self._serve(env, call)
            self._record(call, t_issue)
            call = self._resume(child, call.error)
        end, t_end = (
            Call("exit", next(self.ctx.commands), self.ctx.sites.end_of(kernel_fn)),
            env.now,
        )
        self._note_waiting(end, t_end)
        for call in self._calls:
            t0, before, end.waits_for = env.now, end.waits_for, call
            self._note_waiting(end, t_end)
            yield from self._await(call)
            if before is not None and env.now == t0:  # the last one that held it up
                end.waits_for = before
        self._record(end, t_end)

    def _resume(self, child: greenlet.greenlet, error: Exception | None) -> Any:
        """The next call of the kernel, into which ``error`` is raised; None at its end."""
        try:
            return child.switch() if error is None else child.throw(error)
        except Exception as raised:
            site, kind = self.ctx.sites.of(raised.__traceback__), type(raised)
            where = f"{self.ctx.node.id}: kernel {self.ctx.msg.name} at {site.file}:{site.line}"
            if issubclass(kind, KernelError):
                raise kind(f"{where}: {raised}") from raised
            raise KernelError(f"{where}: {kind.__name__}: {raised}") from raised

    def _serve(self, env: Any, call: Call) -> Generator[Any, Any, None]:
        if call.messages:
            self._calls = [
                c for c in self._calls if not all(p.processed for p in c.processes)
            ]
            self._calls.append(call)
        for msg in call.messages:
            msg.cmd, msg.resumed_by = call.cmd, self._resumed_by
            yield from self._in_program_order(env, msg)
            try:
                call.on_issue(msg)
            except Exception as error:
                call.error = error
                return
            self._unstarted.append(msg)
            process = self.ctx.dispatch(msg)
            process.callbacks.append(lambda _, msg=msg: self._done(call, msg))
            call.processes.append(process)
        awaited = call.waits_for or (call if call.blocking else None)
        if awaited is not None:
            yield from self._await(awaited)
            call.error = awaited.error

    def _await(self, call: Call) -> Generator[Any, Any, None]:
        for process in call.processes:  # noqa: UP028 (SimPy sends values; a list takes none)
            yield process
        if call.last is not None:
            self._resumed_by = call.last

    def _done(self, call: Call, msg: MsgBase) -> None:
        call.last = msg
        msg.resumed_by = (
            None  # recorded by now; a chain of them would keep every message alive
        )
        try:
            call.on_done(msg)
        except Exception as error:
            call.error = call.error or error

    def _in_program_order(self, env: Any, msg: MsgBase) -> Generator[Any, Any, None]:
        """Hold ``msg`` until a cycle after every earlier op whose bytes conflict has started.

        So Phase 2, which replays by t_start, sees program order (simulator.md section 5).
        """
        cycle, before = 1 / self.ctx.spec.clock_ghz, self._unstarted
        self._unstarted = [
            m for m in before if m.t_start < 0 or m.t_start + cycle > env.now
        ]
        for earlier in self._unstarted:
            if _conflict(earlier, msg):
                t0 = env.now
                if isinstance(earlier, SendCmd | RecvCmd):
                    waiting, peer = (
                        self.ctx.msg.waiting,
                        self.ctx.peers[earlier.direction],
                    )
                    waiting[msg.cmd] = waiting[msg.cmd]._replace(peer=peer)
                while earlier.t_start < 0:
                    earlier.started = earlier.started or env.event()
                    yield earlier.started
                if earlier.t_start + cycle > env.now:
                    yield env.timeout(earlier.t_start + cycle - env.now)
                msg.wait(self.ctx.node.id, "operand", t0, env.now, earlier)

    def _note_waiting(self, call: Call, t_issue: float) -> None:
        node, site = self.ctx.node.id, call.site
        direction, peer = (call.waits_for or call).link or ("", "")
        what = (
            f"{node}: {call.name} {direction}".rstrip() + f" at {site.file}:{site.line}"
        )
        record = partial(self._record, call, t_issue)
        self.ctx.msg.waiting[call.cmd] = Waiter(
            what, self.ctx.env.now, node, peer, record
        )

    def _record(self, call: Call, t_issue: float) -> None:
        ctx = self.ctx
        del ctx.msg.waiting[call.cmd]
        awaited = call.waits_for or (call if call.blocking and call.messages else None)
        if ctx.events is not None:
            what, times = (ctx.msg.launch, call.name, call.site), (t_issue, ctx.env.now)
            awaits = awaited.cmd if awaited else NO_CMD
            ctx.events.command(call.cmd, ctx.node.id, *what, awaits, *times)


def _conflict(earlier: MsgBase, later: MsgBase) -> bool:
    """Whether one of the two writes bytes that the other touches."""
    reads, writes = later.regions()
    before_reads, before_writes = earlier.regions()
    touched = any(overlap(w, r) for w in before_writes for r in (*reads, *writes))
    return touched or any(overlap(w, r) for w in writes for r in before_reads)
