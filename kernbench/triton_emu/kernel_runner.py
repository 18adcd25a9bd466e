"""Joins kernel greenlets to SimPy (ADR-0020 D3).

A tl call switches here, time passes, and the kernel goes on. Makes no log record: the
hooks of the components do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import greenlet

from kernbench.common.exact_time import TICK_NS, cycles_ns
from kernbench.common.messages import NO_CMD, Held, MsgBase, Waiter
from kernbench.common.pe_commands import RecvCmd, SendCmd
from kernbench.common.user_code import called, end_if_forked, located
from kernbench.errors import KernelError
from kernbench.sim_engine.event_log import Site
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.triton_emu.calls import Call, KernelContext, overlap
from kernbench.triton_emu.tl_context import TLContext

Process: TypeAlias = Generator[Any, Any, None]


class KernelRunner:
    """Runs one kernel on one PE.

    Owns the calls whose commands are under way, and the commands that have not started.
    """

    def __init__(self, ctx: KernelContext) -> None:
        self.ctx = ctx
        self._unstarted: list[MsgBase] = []
        self._calls: list[Call] = []
        self._resumed_by: MsgBase | None = None
        self._pid = os.getpid()
        self._threads = {*threading.enumerate()}

    def run(
        self,
        env: Any,
        kernel_fn: Callable[..., None],
        args: tuple[Any, ...],
        store: MemoryStore,
    ) -> Process:
        """Run the kernel and all that it issued to the end.

        Raises KernelError for what the kernel raises, with its PE and line.
        """
        issue_ns = cycles_ns(self.ctx.spec.cpu.issue_cycles, self.ctx.spec.clock_ghz)

        def body() -> None:
            tl = TLContext(self.ctx, store)
            called(kernel_fn, *args, **self.ctx.msg.options, tl=tl)

        child = greenlet.greenlet(body)
        try:
            call = self._resume(child, kernel_fn, None)
            while call is not None:
                t_issue = env.now
                self._note_waiting(call, t_issue)
                yield env.timeout(issue_ns)
                yield from self._serve(env, call)
                self._record(call, t_issue)
                call = self._resume(child, kernel_fn, call.error)
        finally:
            _stop(child)
        self._refuse_threads(kernel_fn)
        yield from self._exit(env, kernel_fn)

    def _refuse_threads(self, kernel_fn: Callable[..., None]) -> None:
        """KernelError if the kernel has ended and a thread that it started has not."""
        if threading.active_count() <= len(self._threads):
            return
        for thread in threading.enumerate():
            if thread not in self._threads:
                where = self._where(self.ctx.sites.end_of(kernel_fn))
                raise KernelError(
                    f"{where}: ended, but its thread {thread.name} goes on; "
                    "join it in the kernel"
                )

    def _exit(self, env: Any, kernel_fn: Callable[..., None]) -> Process:
        """Wait for all that the kernel has issued; it is recorded as a call "exit".

        That call awaits the one that ended last.
        """
        t_end = env.now
        site = self.ctx.sites.end_of(kernel_fn)
        number = self.ctx.numbers.take(self.ctx.node.id, "exit", site)
        end = Call("exit", number, site)
        self._note_waiting(end, t_end)
        for call in self._calls:
            t0 = env.now
            before = end.waits_for
            end.waits_for = call
            self._note_waiting(end, t_end)
            yield from self._await(call)
            if before is not None and env.now == t0:
                end.waits_for = before  # the last one that held it up
        self._record(end, t_end)

    def _resume(
        self,
        child: greenlet.greenlet,
        kernel_fn: Callable[..., None],
        error: Exception | None,
    ) -> Call | None:
        """The next call of the kernel, None at its end.

        ``error`` is raised in the kernel. What the kernel raises is wrapped, but for
        KeyboardInterrupt. A process that the kernel forked ends here.
        """
        try:
            got = child.switch() if error is None else child.throw(error)
            if isinstance(got, greenlet.GreenletExit):
                raise got  # a greenlet that it ends gives it back
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            site = self.ctx.sites.of(raised.__traceback__, kernel_fn)
            end_if_forked(self._pid)
            raise located(self._where(site), raised, KernelError) from raised
        end_if_forked(self._pid)
        if child.dead:
            return None
        if isinstance(got, Call):
            return got
        site = self.ctx.sites.at(child.gr_frame)
        raise KernelError(
            f"{self._where(site)}: switched to a greenlet of the simulator; leave the "
            "kernel by calls of tl only"
        )

    def _where(self, site: Site) -> str:
        """What a message about the kernel begins with."""
        kernel = self.ctx.msg.name
        return f"{self.ctx.node.id}: kernel {kernel} at {site.file}:{site.line}"

    def _serve(self, env: Any, call: Call) -> Process:
        """Issue the commands of ``call`` in program order, and wait if it waits."""
        if call.messages:
            self._calls = [c for c in self._calls if c.is_under_way]
            self._calls.append(call)
        for msg in call.messages:
            msg.cmd = call.cmd
            msg.resumed_by = self._resumed_by
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
        awaited = call.waits_for
        if awaited is None and call.blocking:
            awaited = call
        if awaited is not None:
            yield from self._await(awaited)
            call.error = awaited.error

    def _await(self, call: Call) -> Process:
        """Wait until all commands of ``call`` have landed."""
        # SimPy sends values into this generator, and a list takes none
        for process in call.processes:  # noqa: UP028
            yield process
        if call.last is not None:
            self._resumed_by = call.last

    def _done(self, call: Call, msg: MsgBase) -> None:
        """Do what ``call`` does as ``msg`` has landed."""
        call.last = msg
        # recorded by now; a chain of them would keep every message alive
        msg.resumed_by = None
        try:
            call.on_done(msg)
        except Exception as error:
            call.error = call.error or error

    def _in_program_order(self, env: Any, msg: MsgBase) -> Process:
        """Hold ``msg`` until a cycle after every earlier op that conflicts has started.

        So Phase 2, which replays by t_start, sees program order (docs/machine.md,
        "Program order").
        """
        cycle = max(TICK_NS, cycles_ns(1, self.ctx.spec.clock_ghz))
        unstarted = []
        for earlier in self._unstarted:
            if earlier.t_start < 0 or earlier.t_start + cycle > env.now:
                unstarted.append(earlier)
        self._unstarted = unstarted
        for earlier in unstarted:
            if not _conflict(earlier, msg):
                continue
            t0 = env.now
            if isinstance(earlier, SendCmd | RecvCmd):
                waiting = self.ctx.msg.waiting
                waiting[msg.cmd] = waiting[msg.cmd]._replace(
                    peer=self.ctx.peers[earlier.direction],
                    held=self._held(earlier),
                )
            while earlier.t_start < 0:
                if earlier.started is None:
                    earlier.started = env.event()
                yield earlier.started
            if earlier.t_start + cycle > env.now:
                yield env.timeout(earlier.t_start + cycle - env.now)
            msg.wait(self.ctx.node.id, "operand", t0, env.now, earlier)

    def _held(self, msg: MsgBase) -> Callable[[], Held]:
        """Says, whenever it is asked, what holds a send or recv; nothing of others."""
        if not isinstance(msg, SendCmd | RecvCmd):
            return Held
        return partial(self.ctx.held, msg.direction, isinstance(msg, SendCmd))

    def _note_waiting(self, call: Call, t_issue: float) -> None:
        """Say who waits from now on, for a DeadlockError."""
        node = self.ctx.node.id
        site = call.site
        awaited = call.waits_for or call
        direction, peer = awaited.link or ("", "")
        what = f"{node}: {call.name} {direction}".rstrip()
        what = f"{what} at {site.file}:{site.line}"
        if call.caller is not None:
            what += f", called at {call.caller.file}:{call.caller.line}"
        self.ctx.msg.waiting[call.cmd] = Waiter(
            what=what,
            since=self.ctx.env.now,
            node=node,
            peer=peer,
            held=self._held(awaited.messages[0]) if awaited.messages else Held,
            record=partial(self._record, call, t_issue),
        )

    def _record(self, call: Call, t_issue: float) -> None:
        """Record ``call``, with which the kernel goes on now."""
        ctx = self.ctx
        del ctx.msg.waiting[call.cmd]
        if ctx.events is None:
            return
        awaited = call.waits_for
        if awaited is None and call.blocking and call.messages:
            awaited = call
        ctx.events.command(
            call.cmd,
            ctx.node.id,
            ctx.msg.launch,
            call.name,
            call.site,
            awaited.cmd if awaited is not None else NO_CMD,
            t_issue,
            ctx.env.now,
        )


def _stop(child: greenlet.greenlet) -> None:
    """End a kernel that the run has left; what it does then is nobody's concern.

    A run that was ended leaves it to the exit of Python, when no greenlet switches any
    more: the kernel is dropped where it stands.
    """
    if not child.dead:
        with suppress(BaseException):
            child.parent = greenlet.getcurrent()
            child.throw()


def _conflict(earlier: MsgBase, later: MsgBase) -> bool:
    """Whether one of the two writes bytes that the other touches."""
    reads, writes = later.regions()
    before_reads, before_writes = earlier.regions()
    for write in before_writes:
        if any(overlap(write, region) for region in (*reads, *writes)):
            return True
    return any(overlap(w, r) for w in writes for r in before_reads)
