"""The calls of ``tl`` that PEs talk to each other with."""

from __future__ import annotations

from collections.abc import Sequence

from kernbench.common.arrays import Array
from kernbench.common.dtypes import dtype_name
from kernbench.common.messages import Region
from kernbench.common.pe_commands import RecvCmd, SendCmd
from kernbench.errors import KernelError
from kernbench.triton_emu.calls import Call
from kernbench.triton_emu.handles import TensorHandle
from kernbench.triton_emu.math_calls import MathCalls


class IpcqCalls(MathCalls):
    """A direction is one of those that the PE is wired in: N, E, global_W …"""

    def send(self, dir: str, handle: TensorHandle, wait: bool = True) -> None:
        """Send a tensor to the neighbour in ``dir``, slot by slot as it takes them.

        ``wait=True`` waits until all of it has been read, so that it may be
        overwritten. Ranks that all send before they recv need ``wait=False`` for a
        payload larger than the ring.
        """
        whole = self._contiguous(handle, "send").region
        call = self._link_call("send", dir, wait)
        call.messages.append(SendCmd(direction=dir, src=whole))
        call.on_issue = lambda msg: self._check_written(call, msg.src)
        self._switch(call)

    def recv(
        self,
        dir: str,
        shape: Sequence[int],
        dtype: str = "f16",
        out: TensorHandle | None = None,
    ) -> TensorHandle:
        """The next payload from the neighbour in ``dir``, in scratch.

        It is ready if it was when it was sent. It is written to ``out``, else to fresh
        scratch.
        """
        return self._receive(dir, shape, dtype, True, out)

    def recv_async(
        self, dir: str, shape: Sequence[int], dtype: str = "f16"
    ) -> TensorHandle:
        """``recv`` that goes on at once; tl.wait(handle) before its data are used."""
        return self._receive(dir, shape, dtype, False)

    def _receive(
        self,
        dir: str,
        shape: Sequence[int],
        dtype: str,
        wait: bool,
        out: TensorHandle | None = None,
    ) -> TensorHandle:
        """Issue a recv; its bytes are pending until each piece of it lands."""
        call = self._link_call("recv", dir, wait)
        handle = self._output(call, tuple(shape), dtype_name(dtype), out, exact=True)
        handle.awaited = wait
        under_way = f"the recv of {handle.id} from {dir}, still under way"

        def land(piece: Region, data: Array | str) -> None:
            # else it was released, and is another's now
            if self._ctx.peek(piece) is under_way:
                self._ctx.put(piece, data)

        what = f"recv at {call.site.file}:{call.site.line}"
        message = RecvCmd(direction=dir, dst=handle.region, call=what, land=land)
        call.messages.append(message)
        call.on_issue = lambda msg: self._ctx.put(msg.dst, under_way)
        self._switch(call)
        return handle

    def slot_bytes(self, dir: str) -> int:
        """Bytes of a slot of the rings between this PE and its neighbour in ``dir``.

        A payload of more goes as several. KernelError if the PE has no neighbour there.
        """
        self._check_wired("slot_bytes", dir)
        return self._ctx.slot_bytes[dir]

    def _link_call(self, name: str, dir: str, wait: bool) -> Call:
        """A new call over the link in ``dir``; KernelError if the PE has none there."""
        self._check_wired(name, dir)
        call = self._new_call(name, blocking=wait)
        call.link = (dir, self._ctx.peers[dir])
        return call

    def _check_wired(self, name: str, dir: str) -> None:
        """KernelError, with the directions that are, if one is not wired."""
        peers = self._ctx.peers
        if dir not in peers:
            nothing = "none; init_process_group or install_ipcq wires them"
            wired = ", ".join(peers) or nothing
            raise KernelError(
                f"{name}: direction {dir!r} is not wired at this PE; wired: {wired}"
            )
