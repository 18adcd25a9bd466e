"""kernbench: simulate kernels on a multi-chiplet accelerator, record everything, replay
it.

Imports nothing heavy; the rooms are ``kernbench.runtime_api``, ``kernbench.trace`` and
``kernbench.replay``.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
