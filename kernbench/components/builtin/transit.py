"""Routers, UCIe ports and connections, the IO NoC, the switch.

A passing header pays ``overhead_ns`` in the network; no message is ever served here.
"""

from kernbench.components.base import ComponentBase


class Transit(ComponentBase):
    """A node that headers only pass."""
