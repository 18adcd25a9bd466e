"""Files that nobody but the user may read: what is kept of a trace, crash reports.

They tell what somebody works on, and with which data.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_state_path

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def write_private(name: str, data: bytes) -> Path:
    """Write a file of the state directory, or of a folder there; return its path.

    All of it is written or, where that raises OSError, nothing. The file and its
    folders are the user's alone, whatever the umask is and whoever made them before.
    """
    path = user_state_path("kernbench") / name
    _make_private(path.parent)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, _FILE_MODE)
        file.write(data)
    fresh.replace(path)
    return path


def private_folder(name: str) -> Path:
    """A folder of the state directory that is the user's alone, made if there is none.

    OSError if it cannot be made.
    """
    folder = user_state_path("kernbench") / name
    _make_private(folder)
    return folder


def _make_private(folder: Path) -> None:
    """Make a folder, which is the state directory or in it, and those that it is in."""
    for place in reversed([folder, *folder.parents]):
        place.mkdir(_FOLDER_MODE, exist_ok=True)
    for place in (user_state_path("kernbench"), folder):
        place.chmod(_FOLDER_MODE)
