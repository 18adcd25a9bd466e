"""Pane 5: the routed path of the op's transactions, hop by hop, with sums that add up."""

from __future__ import annotations

from kernbench.replay.routes import Leg
from tui.widgets.draw import Line
from tui.widgets.pane import Pane


class RoutePane(Pane):
    """Text that scrolls: a block a transaction."""

    number, title, picks = 5, "Route", False

    def draw(self, width: int, height: int) -> list[Line]:
        """The path, then its hops; times of hops count from the start of the transaction."""
        session = self.session
        if session.cursor < 0:
            return [[("before the first op: ", "dim"), ("s", "bold"), (" steps to it", "dim")]]
        route = session.route()
        if not route.legs:
            return [[(f"op {route.op} {route.name}: ", ""), (route.note, "dim")]]
        lines: list[Line] = []
        for i, leg in enumerate(route.legs, 1):
            lines += self._leg(leg, f"{i}/{len(route.legs)} " if len(route.legs) > 1 else "", width)
        first = self.first_row(len(lines), height)
        return lines[first : first + height]

    def _leg(self, leg: Leg, count: str, width: int) -> list[Line]:
        arrow, ends = self.glyphs.arrow, (leg.hops[0].node, leg.hops[-1].node)
        total = leg.hops[-1].arrive - leg.t0
        lines: list[Line] = [
            [(f"{count}{ends[0]} {arrow} {ends[1]}", "bold")],
            [(f"{leg.nbytes:,} B in {leg.bursts} burst(s), {len(leg.hops) - 1} hops from t={leg.t0:,.2f} ns", "title")],
        ]
        lines.append([(f"{'arrive':>10} {'wait':>9} {'leave':>10} {'mm':>6}  {'link':<9} node", "dim")])
        for hop in leg.hops:
            waited = hop.wait > 1e-9
            wait = f"{hop.wait:>8.2f}!" if waited else f"{hop.wait:>8.2f} "
            lines.append([
                (f"{hop.arrive - leg.t0:>+10.2f} ", ""),
                (wait, "wait" if waited else "dim"),
                (f" {hop.leave - leg.t0:>+10.2f} {hop.distance_mm:>6.2f}  ", ""),
                (f"{hop.edge_kind[:9]:<9} ", "flight"),
                (hop.node[-max(width - 50, 8) :], ""),
            ])  # fmt: skip
        parts = f"{leg.transit_ns:.2f} wires and nodes + {leg.wait_ns:.2f} waiting = {total:.2f} ns to the last node"
        lines.append([(parts, "title")])
        return lines
