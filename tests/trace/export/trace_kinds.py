"""The names of the kinds of trace that ``make`` of this folder's conftest makes."""

KINDS = ("shipped", "empty", "cut", "without_topology", "every_kind_of_op")
