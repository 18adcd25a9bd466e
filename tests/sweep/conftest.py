"""Spaces of a machine of one cube, on which a point takes some ten milliseconds."""

import textwrap

import pytest
from sweeps import ONE_CUBE

SMALL = f"""
bench: matmul
set: {{m: [32, 64], k: 32, n: 32, pes: 1, tile: [16, 32, 64]}}
spec: {{pe.clock_ghz: [1, 2], {ONE_CUBE}}}
where: tile <= m
objectives: [end_ns, energy_j]
"""
"""Ten points, all of which are right."""


@pytest.fixture
def space_file(tmp_path):
    """Writes a space beside the test's other files; its path."""

    def write(text=SMALL, name="space.yaml"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write
