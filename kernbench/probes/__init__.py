"""Measuring the empty machine: ``probe`` and ``describe``."""

from kernbench.probes.probe import ProbeReport, ProbeRow, describe, probe

__all__ = ["ProbeReport", "ProbeRow", "describe", "probe"]
