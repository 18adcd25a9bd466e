"""The trace file: ``TraceWriter`` records a run, ``Trace.open`` maps one back."""

from kernbench.trace.reader import Trace
from kernbench.trace.writer import TraceWriter

__all__ = ["Trace", "TraceWriter"]
