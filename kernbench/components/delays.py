"""Holds ops back on request: their services begin later than they could.

An op that is held has its slot already, so nothing overtakes it in its engine. Then its
service starts, and so does its record, whose wait has the reason ``delayed``. Where no
delay is asked for, nothing of this module is in the way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import simpy

from kernbench.common.delays import DELAYED, CallName, Delay, memory_name
from kernbench.common.messages import HostReadCmd, HostWriteCmd, MsgBase, TileToken
from kernbench.common.pe_commands import PushCmd
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pe_ipcq import PeIpcq
from kernbench.sim_engine.event_log import Site
from kernbench.triton_emu.calls import CallNumbers


class DelayedCalls(CallNumbers):
    """Numbers the calls of a run, and knows those of which an op is to be held back.

    ``unmet`` are the delays whose op has not occurred so far.
    """

    def __init__(self, delays: Sequence[Delay], keep_sites: bool = False) -> None:
        super().__init__(keep_sites)
        self.unmet = list(delays)
        self._by_call: dict[CallName, list[Delay]] = defaultdict(list)
        for delay in delays:
            self._by_call[delay.op.call].append(delay)
        self._made: Counter[tuple[str, str, str, int]] = Counter()
        self._by_number: dict[int, list[Delay]] = {}
        # how many ops of such a call have come, by its number and the memory
        self._pieces: Counter[tuple[int, str]] = Counter()

    def take(self, pe: str, call: str, site: Site) -> int:
        """As of any run; a call that has an op to be held back is remembered."""
        number = super().take(pe, call, site)
        place = (pe, call, site.file, site.line)
        name = CallName(*place, self._made[place])
        self._made[place] += 1
        if name in self._by_call:
            self._by_number[number] = self._by_call[name]
        return number

    def attach(self, component: ComponentBase) -> None:
        """Have a component hold back the ops that are to be."""
        run = component.run

        def held_run(env: simpy.Environment, msg: Any) -> Process:
            """Wait first, if this is an op to be held back: it has not started yet."""
            if msg.data_op or isinstance(msg, PushCmd):
                delay_ns = self._delay_of(component, msg)
                if delay_ns:
                    msg.t_start = -1.0
                    yield from _hold(component, env, msg, delay_ns)
                    msg.t_start = env.now
                    component._on_process_start(env, msg)
            yield from run(env, msg)

        def held_take(env: simpy.Environment, copy: MsgBase) -> Process:
            """The same, of a slot of a ring that is taken out of it."""
            delay_ns = self._delay_of(component, copy)
            if delay_ns:
                yield from _hold(component, env, copy, delay_ns)

        component.run = held_run  # type: ignore[method-assign]
        if isinstance(component, PeIpcq):
            component.before_take = held_take

    def _delay_of(self, component: ComponentBase, msg: MsgBase) -> float:
        """For how long an op whose service could start now is to be held back, ns."""
        delays = self._by_number.get(msg.cmd)
        if delays is None:
            return 0.0
        if isinstance(msg, TileToken):
            name = f"TileToken/{msg.stage.stage_type.name}"
            mine = [d for d in delays if (d.op.op, d.op.tile) == (name, msg.index)]
        else:
            memory = _memory_of(component, msg)
            piece = self._pieces[msg.cmd, memory]
            self._pieces[msg.cmd, memory] += 1
            found = ((), piece, memory)
            mine = [d for d in delays if (d.op.tile, d.op.piece, d.op.memory) == found]
        for delay in mine:
            self.unmet.remove(delay)
        return sum(delay.ns for delay in mine)


def _hold(
    component: ComponentBase, env: simpy.Environment, msg: MsgBase, delay_ns: float
) -> Process:
    """Let so many ns pass, and note that ``msg`` has waited for nothing else."""
    t0 = env.now
    yield env.timeout(delay_ns)
    msg.wait(component.node.id, DELAYED, t0, env.now, None)


def _memory_of(component: ComponentBase, msg: MsgBase) -> str:
    """The memory that an op of the host is for; "" of any other op."""
    if isinstance(msg, HostWriteCmd):
        addr = msg.dst.addr
    elif isinstance(msg, HostReadCmd):
        addr = msg.src.addr
    else:
        return ""
    spec = component.sim.graph.spec
    return memory_name(addr, spec.cube.memory_map.slice_bytes)
