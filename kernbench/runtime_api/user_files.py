"""Files of users: benches by path, and plugins.

A YAML file runs no code: what it names is ours, or is in a module that is loaded by
then. A plugin is loaded under the name of its file, a bench as
``kernbench_bench_NAME``.
"""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from kernbench.common.from_triton import hint
from kernbench.common.user_code import described
from kernbench.errors import UsageError

_OURS: dict[str, ModuleType] = {}
"""The modules that were made here, by name: another run may load them anew."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A file whose classes and modules YAML may name: its module, and its SHA-256."""

    name: str
    sha: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was run: its absolute path, and its SHA-256 in hex."""

    path: str
    sha: str


def sha_of(path: Path) -> str:
    """The SHA-256 of a file, in hex; OSError if it cannot be read."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_plugins(paths: Sequence[str | Path]) -> list[Plugin]:
    """Run each file, as the module that its name says.

    UsageError for a file that cannot be read or run, and for a name that is taken.
    """
    plugins: list[Plugin] = []
    for path in map(Path, paths):
        what = f"plugin {str(path)!r}"
        name = path.stem
        if path.suffix != ".py":
            raise UsageError(f"{what} is no .py file")
        is_taken = name in sys.modules and sys.modules[name] is not _OURS.get(name)
        if is_taken or name in [plugin.name for plugin in plugins]:
            raise UsageError(
                f"{what}: a module {name!r} is loaded already; rename the file"
            )
        plugins.append(Plugin(name, run_file(path, name, what)))
    return plugins


def run_file(path: Path, name: str, what: str) -> str:
    """Run a file as the module ``name``, which stays loaded; its SHA-256, in hex.

    UsageError, which begins with ``what``, if it cannot be read, and for whatever it
    raises.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from None
    file = str(path.absolute())
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = _OURS[name] = module
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        said = described(error)
        raise UsageError(f"{what}: {said}{hint(said)}") from error
    return hashlib.sha256(source).hexdigest()
