"""Numbers of the machine's spec as a trace has recorded it."""

from __future__ import annotations

from math import inf
from typing import Any

from kernbench.common.exact_time import TICK_NS, cycles_ns

_MOST = 1e12


def spec_number(spec: Any, path: str) -> float:
    """The number at a dotted path of a trace's spec; 0 where it has none that can be.

    None of a machine is negative, or further from 1 than ``_MOST`` times.
    """
    value = spec_value(spec, path)
    if isinstance(value, int | float) and 1 / _MOST <= value <= _MOST:
        return float(value)
    return 0.0


def spec_value(spec: Any, path: str) -> Any:
    """What a trace's spec has at a dotted path; None where it has nothing."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec


def issue_ns(spec: Any) -> float:
    """How long PE_CPU takes to issue a call, ns."""
    clock_ghz = spec_number(spec, "pe.clock_ghz") or 1.0
    return cycles_ns(spec_number(spec, "pe.cpu.issue_cycles"), clock_ghz)


def cycle_ns(spec: Any) -> float:
    """How long an op is held at least behind one that it conflicts with, ns."""
    return max(TICK_NS, cycles_ns(1, spec_number(spec, "pe.clock_ghz") or 1.0))


def sent_bytes_per_ns(spec: Any) -> float:
    """How fast a send reads what it sends; inf where the spec does not say."""
    return spec_number(spec, "pe.dma.to_router_bw_gbs") or inf
