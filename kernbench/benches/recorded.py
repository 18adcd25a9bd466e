"""The traces that ship in ``traces/``: what each runs, and how its run has to end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kernbench.errors import KernbenchError, VerificationError
from kernbench.runtime_api import run_bench


class Recorded(NamedTuple):
    """A bench and its parameters; ``ends`` is the error that ends it, "" for none."""

    bench: str
    params: dict[str, Any]
    ends: str = ""


_ATTENTION = {"seq": 64, "d": 32, "pes": 8}
_MLP = {"tokens": 16, "d": 32, "hidden": 128}
RECORDED = {
    "matmul": Recorded("matmul", {"m": 128, "k": 128, "n": 128, "pes": 8}),
    "flash_attention": Recorded("flash_attention", _ATTENTION),
    "ccl_allreduce": Recorded("ccl_allreduce", {"n_elem": 64}),
    "mlp_tp": Recorded("mlp_tp", _MLP),
    "fault_missing_wait": Recorded("fault_missing_wait", {}),
    "fault_overflow": Recorded("fault_overflow", {}, "VerificationError"),
    "fault_wrong_root": Recorded("fault_wrong_root", {}, "VerificationError"),
    "fault_ring_by_name": Recorded("fault_ring_by_name", {}, "DeadlockError"),
}


def record(folder: Path) -> Iterator[tuple[Path, str]]:
    """Record all into ``folder``: each file, and the error that its run ended with.

    The error is "" for none. VerificationError where it is another than it has to be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, row in RECORDED.items():
        path = folder / f"{name}.msgpack"
        error = _record(row, path)
        kind, _, _ = error.partition(":")
        if kind != row.ends:
            raise VerificationError(
                f"{path}: {row.bench} ended with {error or 'no error'}, not with "
                f"{row.ends or 'none'}; look at the trace, or correct RECORDED"
            )
        yield path, error


def _record(row: Recorded, path: Path) -> str:
    """Record one run; what it ends with."""
    try:
        result = run_bench(row.bench, params=row.params, trace=path)
    except KernbenchError as why:
        return f"{type(why).__name__}: {why}"
    return result.trace_error or result.error or ""
