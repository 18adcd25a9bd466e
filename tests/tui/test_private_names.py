"""Private names of Textual and Rich stand in ``tui/ansi.py`` and nowhere else."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tui

FOLDER = Path(tui.__file__).parent
LIBRARIES = ("textual", "rich")
FILES = [path for path in sorted(FOLDER.rglob("*.py")) if path.name != "ansi.py"]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def of_a_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in LIBRARIES


def private_imports(tree: ast.AST) -> Iterator[str]:
    """Private modules of the libraries, and private names of their modules."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if of_a_library(name) and any(map(is_private, name.split("."))):
                yield name


def private_attributes(tree: ast.AST) -> Iterator[tuple[bool, str]]:
    """Private attributes in a piece of code, and whether each is of its own object.

    So is ``self._x``, ``cls._x``, ``super()._x`` and a method of that name.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_private(node.name):
                yield True, node.name
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            yield owner in ("self", "cls", "super()"), node.attr


@cache
def names_of_a_class(cls: type) -> frozenset[str]:
    """The private names that a class defines, or sets on its objects."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return frozenset(name for own, name in private_attributes(tree) if own)


def inherited_from_a_library(cls: type) -> set[str]:
    """The private names that a class has from Textual or Rich."""
    bases = [base for base in cls.__mro__ if of_a_library(base.__module__)]
    return {name for base in bases for name in names_of_a_class(base)}


def foreign_uses(path: Path) -> list[str]:
    """Every use of a private name of the libraries in a file of ``tui``."""
    parts = path.relative_to(FOLDER.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = list(private_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            inherited = inherited_from_a_library(getattr(module, node.name))
            for own, name in private_attributes(node):
                if own and name in inherited:
                    found.append(f"{node.name}.{name}")
    for own, name in private_attributes(tree):
        if not own and name not in names_of_tui() and name != "_exit":  # of os
            found.append(name)
    return found


@cache
def names_of_tui() -> frozenset[str]:
    """The private names that the files of ``tui`` themselves define."""
    names: set[str] = set()
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names.update(name for own, name in private_attributes(tree) if own)
    return frozenset(names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
@pytest.mark.slow
def test_a_file_names_nothing_private_of_textual_or_rich(path: Path) -> None:
    assert foreign_uses(path) == []


BAD = {
    "import textual._compositor": "textual._compositor",
    "from rich._loop import loop_first": "rich._loop.loop_first",
    "from textual.app import _x": "textual.app._x",
}


@pytest.mark.parametrize("code", BAD)
def test_private_imports_are_found(code: str) -> None:
    assert list(private_imports(ast.parse(code))) == [BAD[code]]


def test_what_a_class_has_from_textual_is_found() -> None:
    from tui.ansi import DiffApp

    assert {"_display", "_driver", "_fatal_error"} <= inherited_from_a_library(DiffApp)
