"""The host's side: benches, tensors, launches, and a run as a whole."""

from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.rerun import Change, Rerun, rerun
from kernbench.runtime_api.run import RunResult, run_bench
from kernbench.runtime_api.torch import Tensor, Torch

__all__ = [
    "Change",
    "DPPolicy",
    "Rerun",
    "RunResult",
    "Tensor",
    "Torch",
    "rerun",
    "run_bench",
]
