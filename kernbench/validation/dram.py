"""One channel of HBM against DRAMsim3's HBM2_8Gb_x128 (Li et al., CAL 2020).

Patterns of requests that are all there from the start keep the channel at work; what
it carries is compared with DRAMsim3's in per cent of the peak of 32 GB/s. A lone read
of an idle channel is compared in ns.
"""

from collections.abc import Callable, Mapping
from random import Random
from statistics import fmean
from typing import Literal

from kernbench.probes import channel
from kernbench.topology.spec import HbmSpec
from kernbench.validation.table import Bound, Row, Table

Request = tuple[float, Literal["r", "w"], int, int]
"""When it comes in ns, read or write, address, and bytes."""

REQUESTS = 8192
_SPAN_BYTES = 512 << 20
_LINE = 256


def sequential_reads() -> list[Request]:
    """256 bytes after 256 bytes."""
    return [(0.0, "r", i * _LINE, _LINE) for i in range(REQUESTS)]


def random_reads(nbytes: int) -> list[Request]:
    """Pieces of that size, at random multiples of it."""
    random = Random(nbytes)
    pieces = _SPAN_BYTES // nbytes
    return [
        (0.0, "r", random.randrange(pieces) * nbytes, nbytes) for _ in range(REQUESTS)
    ]


def alternating() -> list[Request]:
    """256 bytes read, the next 256 written, and so on."""
    requests: list[Request] = []
    for i in range(0, REQUESTS, 2):
        requests.append((0.0, "r", i * _LINE, _LINE))
        requests.append((0.0, "w", (i + 1) * _LINE, _LINE))
    return requests


def one_bank() -> list[Request]:
    """256 bytes of every MiB: always another row of the same bank."""
    return [(0.0, "r", (i << 20) % _SPAN_BYTES, _LINE) for i in range(REQUESTS)]


DRAMSIM3: Mapping[str, tuple[Callable[[], list[Request]], float]] = {
    "sequential reads": (sequential_reads, 93),
    "random reads of 64 B": (lambda: random_reads(64), 25),
    "random reads of 256 B": (lambda: random_reads(256), 92),
    "a read and a write in turn, every 256 B": (alternating, 80),
    "256 B of every MiB": (one_bank, 16),
}
"""What makes the requests of a pattern, and DRAMsim3's per cent of the peak."""

IDLE_READ_NS = 47.0


def share_of_peak(requests: list[Request]) -> float:
    """Per cent of its bandwidth that one channel gives to requests."""
    hbm = HbmSpec()
    nbytes = sum(request[3] for request in requests)
    return 100 * nbytes / max(channel(hbm, requests)) / hbm.channel_bw_gbs


def idle_read_ns() -> float:
    """Mean latency of a random read of 64 bytes on a channel that is idle."""
    random = Random(0)
    pieces = _SPAN_BYTES // 64
    requests: list[Request] = [
        (1000.0 * i, "r", random.randrange(pieces) * 64, 64) for i in range(1000)
    ]
    ends = channel(HbmSpec(), requests)
    return fmean(end - request[0] for end, request in zip(ends, requests, strict=True))


def dram_table() -> Table:
    """The five patterns, and a lone read."""
    rows = [
        Row(what, "DRAMsim3", share, share_of_peak(make()), "%", Bound(10))
        for what, (make, share) in DRAMSIM3.items()
    ]
    rows.append(
        Row(
            what="random read of an idle channel",
            source="DRAMsim3",
            reference=IDLE_READ_NS,
            model=idle_read_ns(),
            unit="ns",
            bound=Bound(10),
        )
    )
    return Table("One channel of HBM", rows)
