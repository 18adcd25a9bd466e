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
    top = user_state_path("kernbench")
    path = top / name
    for folder in reversed(path.parents):
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
    for folder in (top, path.parent):
        folder.chmod(_FOLDER_MODE)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, _FILE_MODE)
        file.write(data)
    fresh.replace(path)
    return path
