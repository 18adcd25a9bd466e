"""No module of the library imports itself by a detour.

Imports that are made for types only, or inside functions, count as the others do.
"""

import ast
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[1]


def module_name(path):
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports():
    """All arrows of the house, from the importing module to the imported one."""
    paths = {module_name(path): path for path in (ROOT / "kernbench").rglob("*.py")}
    graph = networkx.DiGraph()
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = inner if inner in paths else node.module
                if target in paths and target != name:
                    graph.add_edge(name, target)
    return graph


@pytest.mark.slow
def test_no_module_imports_itself_by_a_detour():
    groups = networkx.strongly_connected_components(imports())
    assert [sorted(group) for group in groups if len(group) > 1] == []
