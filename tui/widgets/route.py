"""Pane 5: the routed path of the op's transactions, hop by hop, with sums that add up."""

from __future__ import annotations

from textwrap import wrap

from kernbench.replay.routes import Leg
from tui.widgets.draw import Line
from tui.widgets.pane import BEFORE, Pane


class RoutePane(Pane):
    """Text that scrolls: a block a transaction."""

    number, title, picks = 5, "Route", False

    def draw(self, width: int, height: int) -> list[Line]:
        """The path, then its hops; times of hops count from the start of the transaction."""
        if self.session.cursor < 0:
            return [BEFORE]
        route = self.session.route()
        lines: list[Line] = []
        if route.note:
            parts = wrap(f"op {route.op} {route.name}: {route.note}", max(width - 2, 8))
            lines += [[(f" {part}", "dim")] for part in parts]
        for i, leg in enumerate(route.legs, 1):
            lines += self._leg(leg, f"{i}/{len(route.legs)} " if len(route.legs) > 1 else "", width)
        first = self.first_row(len(lines), height)
        self.subtitle = f"{max(len(lines) - first - height, 0)} lines below" * (len(lines) > height)
        return lines[first : first + height]

    def _leg(self, leg: Leg, count: str, width: int) -> list[Line]:
        last, hops = leg.hops[-1], len(leg.hops) - 1
        kind = max(len(hop.edge_kind) for hop in leg.hops)
        size = f" {leg.nbytes:,} B in {leg.bursts} burst(s), {hops} hops from t={leg.t0:,.2f} ns"
        lines: list[Line] = [
            [(f" {count}{leg.hops[0].node} {self.glyphs.arrow} {last.node}", "bold")],
            [(size, "title")],
            [(f"{'arrive':>9} {'wait':>7}  {'leave':>9} {'mm':>5} {'link':<{kind}} node", "dim")],
        ]
        for hop in leg.hops:
            waited = hop.wait > 1e-9
            line: Line = [(f"{hop.arrive - leg.t0:>+9.2f} ", "")]
            line.append((f"{hop.wait:>7.2f}{'!' if waited else ' '} ", "mark" if waited else "dim"))
            line.append((f"{hop.leave - leg.t0:>+9.2f} {hop.distance_mm:>5.2f} ", ""))
            line.append((f"{hop.edge_kind:<{kind}} ", "flight"))
            lines.append([*line, (hop.node[-max(width - 36 - kind, 8) :], "")])
        parts = f" {leg.transit_ns:.2f} on the way + {leg.wait_ns:.2f} waiting"
        total = f" = {last.arrive - leg.t0:.2f} ns to the last node"
        return [*lines, [(parts + total, "title")]]
