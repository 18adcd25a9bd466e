"""Measuring the empty machine: ``probe``, ``describe``; and one ``channel`` of it."""

from kernbench.probes.channel import channel
from kernbench.probes.probe import LIMITS, ProbeReport, ProbeRow, describe, probe

__all__ = ["LIMITS", "ProbeReport", "ProbeRow", "channel", "describe", "probe"]
