"""The types of what takes time: a process, and the service of a memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

Process: TypeAlias = Generator[Any, Any, None]
"""A SimPy process: it yields the events that it waits for."""

Service: TypeAlias = tuple[float, float, float]
"""What a memory answers to a burst, in ns: when it starts, its access latency, and its
service time. A plain tuple, as there is one a burst."""
