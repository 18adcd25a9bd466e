"""The names of the kinds of trace that ``make`` of this folder's conftest makes."""

from pathlib import Path

SHIPPED = Path(__file__).parents[3] / "traces" / "matmul.msgpack"

KINDS = ("shipped", "empty", "cut", "without_topology", "every_kind_of_op")
