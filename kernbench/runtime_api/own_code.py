"""Which code records a run: a hash of all of kernbench that a recording depends on."""

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_ROOMS = (
    *("benches", "ccl", "common", "components", "configs", "policy", "runtime_api"),
    *("sim_engine", "topology", "trace", "triton_emu"),
)
"""All but what only asks of a trace, or measures."""


@cache
def code_sha() -> str:
    """The SHA-256 of the names and texts of these files, in hex."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_PACKAGE / room).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
