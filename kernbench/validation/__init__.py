"""The model held against what others published, and against sums done by hand.

Owns the tables of docs/machine.md, "Validation". Each is one function of ``TABLES``
that simulates what it compares, with the machine's own components and the package
alone; ``kernbench validate`` prints them.
"""

from collections.abc import Callable, Mapping

from kernbench.validation.bounds import bounds_table
from kernbench.validation.data import matmul_table
from kernbench.validation.dram import dram_table
from kernbench.validation.energy import energy_table
from kernbench.validation.gemm import gemm_table
from kernbench.validation.laws import laws_table
from kernbench.validation.links import links_table
from kernbench.validation.mesh import load_table, mesh_table
from kernbench.validation.queue import queue_table
from kernbench.validation.ring import ring_table
from kernbench.validation.table import Table

TABLES: Mapping[str, Callable[[], Table]] = {
    "gemm": gemm_table,
    "mesh": mesh_table,
    "load": load_table,
    "queue": queue_table,
    "links": links_table,
    "dram": dram_table,
    "bounds": bounds_table,
    "ring": ring_table,
    "energy": energy_table,
    "laws": laws_table,
    "matmul": matmul_table,
}
"""What makes each table, by the name that ``kernbench validate`` knows it by."""

__all__ = ["TABLES", "Table"]
