"""The CPU of a PE: runs the kernel of a launch through KernelRunner.

It knows no greenlet.
"""

import simpy

from kernbench.common.messages import NO_CMD, Held, LaunchMsg
from kernbench.components.base import ComponentBase, Process
from kernbench.components.builtin.pe_ipcq import PeIpcq
from kernbench.components.builtin.pe_mmu import PeMmu
from kernbench.components.builtin.pe_scheduler import PeScheduler
from kernbench.triton_emu.calls import KernelContext
from kernbench.triton_emu.kernel_runner import KernelRunner


class PeCpu(ComponentBase):
    """One kernel at a time."""

    serves = (LaunchMsg,)

    def run(self, env: simpy.Environment, msg: LaunchMsg) -> Process:
        """Wait for the launch's start; run the kernel and all it issued to the end."""
        late_ns = env.now - msg.target_start_ns
        if late_ns < 0:
            yield env.timeout(-late_ns)
        elif late_ns > 0 and self.sim.events is not None:
            text = (
                f"launch {msg.launch} reached {self.node.id} "
                f"{late_ns:g} ns after its start time"
            )
            self.sim.events.text(env.now, NO_CMD, "warning", text)
        msg.t_start = env.now
        msg.t_first_start = min(msg.t_first_start, env.now)
        runner = KernelRunner(self._context(env, msg))
        yield from runner.run(env, msg.kernel, msg.args, self.sim.store)
        msg.ran.add(self.node.id)
        msg.remaining -= 1
        if msg.remaining == 0:
            msg.done.succeed()

    def _context(self, env: simpy.Environment, msg: LaunchMsg) -> KernelContext:
        """What this PE lends to a kernel."""
        sim = self.sim
        node = self.node
        spec = sim.graph.spec.pe
        ipcq = self.sibling("pe_ipcq", ComponentBase)
        reserved_bytes = sim.reserved["tcm", *node.place]
        return KernelContext(
            env=env,
            node=node,
            spec=spec,
            msg=msg,
            pending=sim.pending,
            events=sim.events,
            sites=sim.sites,
            numbers=sim.numbers,
            warnings=sim.warnings,
            notes=sim.notes,
            texts=sim.texts,
            dispatch=self.sibling("pe_scheduler", PeScheduler).dispatch,
            translate=self.sibling("pe_mmu", PeMmu).translate,
            describe=sim.pages.describe,
            peek=sim.peek,
            put=sim.put,
            scratch_bytes=spec.tcm.size_kib * 1024 - reserved_bytes,
            peers=ipcq.peers if isinstance(ipcq, PeIpcq) else {},
            slot_bytes=ipcq.slot_bytes if isinstance(ipcq, PeIpcq) else {},
            held=ipcq.held if isinstance(ipcq, PeIpcq) else lambda *_: Held(),
        )
