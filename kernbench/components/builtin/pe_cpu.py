"""The CPU of a PE: runs the kernel of a launch through KernelRunner; it knows no greenlet."""

import simpy

from kernbench.common.messages import NO_CMD, LaunchMsg
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
        """Wait for the launch's start, run the kernel and all that it issued to the end."""
        late = env.now - msg.target_start_ns
        if late < 0:
            yield env.timeout(-late)
        elif late > 0 and self.sim.events is not None:
            text = f"launch {msg.launch} reached {self.node.id} {late:g} ns after its start time"
            self.sim.events.text(env.now, NO_CMD, "warning", text)
        msg.t_start = env.now
        msg.t_first_start = min(msg.t_first_start, env.now)
        runner = KernelRunner(self._context(env, msg))
        yield from runner.run(env, msg.kernel, msg.args, self.sim.store)
        msg.remaining -= 1
        if msg.remaining == 0:
            msg.done.succeed()

    def _context(self, env: simpy.Environment, msg: LaunchMsg) -> KernelContext:
        sim, node = self.sim, self.node
        mmu, scheduler = (
            self.sibling("pe_mmu", PeMmu),
            self.sibling("pe_scheduler", PeScheduler),
        )
        lent = (sim.pending, sim.events, sim.sites, sim.commands, sim.warnings)
        calls = (
            scheduler.dispatch,
            mmu.translate,
            sim.pages.describe,
            sim.peek,
            sim.put,
        )
        ipcq = self.sibling("pe_ipcq", ComponentBase)
        scratch = (
            sim.graph.spec.pe.tcm.size_kib * 1024 - sim.reserved["tcm", *node.place]
        )
        peers = ipcq.peers if isinstance(ipcq, PeIpcq) else {}
        return KernelContext(
            env, node, sim.graph.spec.pe, msg, *lent, *calls, scratch, peers
        )
