"""One channel of HBM alone: when requests to it end, without machine or simulation."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from typing import TypeAlias

from kernbench.common.rows import Rows
from kernbench.errors import KernbenchError
from kernbench.topology.dram import layout_of, new_channel
from kernbench.topology.spec import HbmSpec, TopologySpec, check_spec

Request: TypeAlias = tuple[float, str, int, int]
"""When it comes in ns, "r" or "w", its first byte in the channel, and its bytes."""


def channel(hbm: HbmSpec, requests: Iterable[Request]) -> list[float]:
    """When each request to one channel has ended, in ns, in the order of ``requests``.

    Those that come at one time are served in the order given. A read has ended with
    its last byte; a write when it would have been written alone, or with the drain that
    it causes. Addresses are those of the channel: nothing is interleaved here.
    TopologyError where ``hbm`` makes no sense, KernbenchError names a request that does
    not.
    """
    spec = TopologySpec()
    check_spec(replace(spec, cube=replace(spec.cube, hbm=hbm)))
    # With one channel the interleave changes nothing.
    alone = replace(
        hbm, channels=1, channel_hash="none", interleave_bytes=hbm.row_bytes
    )
    layout = layout_of(alone)
    model = new_channel(alone)
    given = list(requests)
    for at, request in enumerate(given):
        _check(at, request)
    ends = [0.0] * len(given)
    for at in sorted(range(len(given)), key=lambda at: given[at][0]):
        t, op, addr, nbytes = given[at]
        pattern, base = layout.find(Rows.one(addr, nbytes))
        _, share = pattern.shares[0]
        _, ends[at], _ = model.serve(t, op == "w", share, base)
    return ends


def _check(at: int, request: Request) -> None:
    """KernbenchError if a request makes no sense."""
    wanted = '(t >= 0 ns, "r" or "w", addr >= 0, bytes >= 1)'
    problem = ""
    if len(request) != 4:
        problem = f"has {len(request)} values"
    elif not (isfinite(request[0]) and request[0] >= 0):
        problem = f"comes at {request[0]}"
    elif request[1] not in ("r", "w"):
        problem = f"is neither read nor write: {request[1]!r}"
    elif request[2] < 0 or request[3] < 1:
        problem = f"has {request[3]} bytes at {request[2]}"
    if problem:
        raise KernbenchError(f"request {at} {problem}; valid: {wanted}")
