"""Routers, UCIe ports and connections, the IO NoC, the switch: a passing header pays
``overhead_ns``, no more.

A header in flight is a number in the network; no message is ever served here.
"""

from kernbench.components.base import ComponentBase


class Transit(ComponentBase):
    """A node that headers only pass."""
