"""What files of users' code are called in a trace, and which file a function is in.

A file is shown relative to the package or to the working directory, so that equal runs
show equal names. Benches and collective algorithms count as user code wherever they
live.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from inspect import unwrap
from types import CodeType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_USER_ROOMS = ("benches", "ccl")


def working_folder() -> str:
    """The working directory, to which names are relative; the root if it is no more."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


def shown_name(path: str, folder: str) -> str | None:
    """The name of a file in sites; None for a file of the simulator itself.

    It is relative to the package, or to ``folder`` if it lies there.
    """
    if path.startswith(PACKAGE + os.sep):
        inside = os.path.relpath(path, PACKAGE)
        if inside.split(os.sep)[0] not in _USER_ROOMS:
            return None
        return "/".join(["kernbench", *inside.split(os.sep)])
    if path.startswith("<frozen"):
        return None
    inside = os.path.relpath(path, folder) if os.path.isabs(path) else path
    if inside.startswith(".."):
        return path
    return inside.replace(os.sep, "/")


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code of a function, or of what is called for an object that is called.

    None of a function that is not written in Python.
    """
    while isinstance(function, partial):
        function = function.func
    function = unwrap(function, stop=lambda inner: hasattr(inner, "__code__"))
    code = getattr(function, "__code__", None)
    if code is None and callable(function):
        code = getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
