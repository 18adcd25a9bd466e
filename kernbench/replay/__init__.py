"""The debugger without a screen: pure Python and numpy, no Textual."""

from kernbench.replay.session import ReplaySession

__all__ = ["ReplaySession"]
