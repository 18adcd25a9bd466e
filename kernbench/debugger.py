"""``kernbench-tui``, also as ``python -m kernbench.debugger``: starts the debugger.

The debugger's package is called ``tui``, and so may another one be that stands first on
the path. ``kernbench`` is a name that no other has: this takes the ``tui`` that lies
beside it. Nothing else here knows the screen.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "tui"


def main() -> None:
    """Run ``kernbench-tui``, or say in a line that its package is not there."""
    if not _take_package():
        print(
            f"error: {_PACKAGE}: no debugger here; install kernbench again",
            file=sys.stderr,
        )
        sys.exit(1)
    from tui.guardian import main

    main()


def _take_package() -> bool:
    """Let ``import tui`` find the one beside ``kernbench``; whether there is one."""
    start = _PACKAGE / "__init__.py"
    if not start.is_file():
        return False
    places = [str(_PACKAGE)]
    spec = spec_from_file_location("tui", start, submodule_search_locations=places)
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["tui"] = package
    spec.loader.exec_module(package)
    return True


if __name__ == "__main__":
    main()
