"""The one tree of errors; every message carries the values and says what to do.

KernbenchError          itself: what a bench raised, with its line; a trace that was
│                       cut off as it was written
├── RefusedError        what cannot be begun: a file that cannot be opened or written,
│                       a question that this trace cannot answer, a run that cannot
│                       be repeated
├── UsageError          an unknown bench, --set key, command or registry entry; a
│                       size out of range
├── TopologyError       a topology file: path, line and field, with the valid names
├── RoutingError        no such node, no path, an address that maps to no node
├── AddressError        a field of a physical address, or a virtual address, out of
│                       range
├── MemoryStoreError    (also ValueError) bytes never written, size mismatch,
│                       non-contiguous array
├── KernelError         what a kernel raised, with PE, kernel and line
│   ├── PendingDataError    data of a compute result asked for in Phase 1
│   └── TcmOverflowError    scratch, or the tiles of a composite, do not fit the TCM
│                           of a PE
├── DeadlockError       nothing can go on: who waits on whom
├── LimitError          a run that was to end by a time or a number of ops, and did not
├── TraceFormatError    a trace file: offset and frame
└── VerificationError   data differ from their reference, or cannot be compared
                        with it

A program that ends with one of them exits with its ``exit_code``, as grep and diff do:
1 where something ran and the answer is bad, 2 where nothing ran or could be read.
"""

from collections.abc import Mapping
from typing import Any


class KernbenchError(Exception):
    """Root of all errors that kernbench raises on purpose."""

    exit_code = 1
    """What a program ends with."""

    params: Mapping[str, Any] | None = None
    """Of a run that it ended the bench's parameters, with their defaults."""


class RefusedError(KernbenchError):
    """What is asked for cannot be begun, as things are; says what to change."""

    exit_code = 2


class UsageError(KernbenchError):
    """A name or value that the user gave is not valid; the message lists what is."""

    exit_code = 2


class TopologyError(KernbenchError):
    """A topology file or spec is wrong; names file, line and path of the field."""

    exit_code = 2


class RoutingError(KernbenchError):
    """A node is not in the topology, or no path leads to it."""


class AddressError(KernbenchError):
    """An address, or a field of one, is out of range."""


class MemoryStoreError(KernbenchError, ValueError):
    """A read or write that the memory store cannot serve.

    It is a ValueError too, as ADR-0052 D6.3 has it.
    """


class KernelError(KernbenchError):
    """A kernel raised, or asked for something impossible; names PE, kernel and line."""


class PendingDataError(KernelError):
    """Data of a compute result was asked for in Phase 1 (ADR-0020 D3)."""


class TcmOverflowError(KernelError):
    """Scratch, or the tiles of a composite, do not fit in the TCM of a PE."""


class DeadlockError(KernbenchError):
    """The event queue ran dry while something still waits."""


class LimitError(KernbenchError):
    """A run has come to the limit that it was given; names what still runs."""


class TraceFormatError(KernbenchError):
    """A trace file is not one, or is damaged; names the offset and the frame."""

    exit_code = 2


class VerificationError(KernbenchError):
    """Data cannot be compared with their reference."""
