"""The machine of a trace with fields changed; the links of the last few are kept."""

from __future__ import annotations

from typing import Any, TypeAlias

from kernbench.replay.whatif.fields import Change
from kernbench.replay.whatif.links import ChangedLinks, LinkTimes
from kernbench.replay.whatif.machine import Machine
from kernbench.topology.spec import TopologySpec

OF_LINKS = (
    *("system.", "sip.", "cube.router.", "cube.ucie.", "cube.m_cpu.", "cube.sram."),
    *("cube.hbm.to_router_bw_gbs", "pe.tcm.", "pe.dma.to_router_bw_gbs"),
)
"""The fields that any link of the machine depends on."""

_MACHINES = 16
"""Of so many changed machines the links are kept."""

_Fields: TypeAlias = tuple[tuple[str, Any], ...]
"""Paths of fields, each with a value."""


class ChangedMachines:
    """Machines that are ``recorded`` but for some fields.

    To build the links of one takes longer than a walk over a graph.
    """

    def __init__(self, recorded: Machine, changed_links: ChangedLinks) -> None:
        self._recorded = recorded
        self._changed_links = changed_links
        self._built: dict[_Fields, LinkTimes | None] = {}

    def with_(self, spec: TopologySpec, changes: tuple[Change, ...]) -> Machine:
        """The machine ``spec``, which has some changes.

        It is the recorded one if that machine has other links than were recorded.
        """
        links = self._links(spec, changes)
        if links is None:
            return self._recorded
        return Machine(self._recorded.ways, links, spec)

    def _links(
        self, spec: TopologySpec, changes: tuple[Change, ...]
    ) -> LinkTimes | None:
        """The links of the machine ``spec``; None if it has others than were
        recorded.
        """
        of_links = tuple(
            (change.field.path, change.value)
            for change in changes
            if change.field.role == "unsure" or change.field.path.startswith(OF_LINKS)
        )
        if not of_links:
            return self._recorded.links
        if of_links not in self._built:
            if len(self._built) == _MACHINES:
                self._built.clear()
            self._built[of_links] = self._changed_links.with_(spec)
        return self._built[of_links]
