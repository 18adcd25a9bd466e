"""Kernels that are wrong on purpose, each with what must be found about it; importing registers.

Nothing that looks for faults may know them: a finding comes from what the ops do.
"""

from kernbench.benches.faults import (  # noqa: F401
    low_bits,
    missing_wait,
    never_written,
    overflow,
    past_shard,
    scratch_reused,
)
