"""Why the op under the cursor began when it did, and what followed: in a sentence, and
by the slices that stand out.
"""

from __future__ import annotations

from kernbench.replay.views.causes import Causes, Linked
from tui.draw import Line
from tui.panes.axis import Axis
from tui.panes.slices import Pointed, duration_text

_SMALL_NS = 0.5
"""A time between two ops that is not worth a word."""
_REASONS = {
    "operand": "its operands",
    "engine": "the engine",
    "window": "its turn in the window of tiles",
    "dma_slot": "a slot of the DMA",
    "link": "a link",
    "hbm_channel": "a channel of HBM",
    "credit": "a free slot at the receiver",
    "arrival": "what was sent to it",
    "launch": "the launch",
    "barrier": "the barrier",
    "sram_port": "the port of the SRAM",
}
"""What waits are for, in words; any other reason is said as it is."""


def pointed(cursor: int, causes: Causes | None) -> Pointed:
    """The ops that stand out: the cursor's, its cause and its effect."""
    linked = set()
    if causes is not None:
        for other in (causes.cause, causes.effect):
            if other is not None:
                linked.add(other.op)
    return Pointed(cursor, frozenset(linked))


def why(causes: Causes | None, axis: Axis) -> tuple[Line, Line]:
    """Why the cursor's op waited, and what waited for it; with arrows to what is not
    in view.
    """
    if causes is None or causes.op < 0:
        return [], []
    before: Line = []
    cause = causes.cause
    if causes.reason:
        what = _REASONS.get(causes.reason, causes.reason)
        waited = duration_text(causes.waited)
        before = [(f" waited {waited} ", "bold"), (f"for {what}", "")]
        if cause is not None:
            how = ", behind" if causes.behind else "; came after"
            before += [(f"{how} {cause.name}", ""), (_place(cause), "dim")]
    elif cause is not None:
        gap = causes.t0 - cause.t1
        when = "at once after"
        if gap >= _SMALL_NS:
            when = f"{duration_text(gap)} after"
        elif gap <= -_SMALL_NS:
            when = "beside"
        before = [(f" began {when} ", "bold"), (cause.name, ""), (_place(cause), "dim")]
    else:
        before = [(" waited for nothing", "dim")]
    if cause is not None and cause.t1 < axis.t0:
        earlier = duration_text(causes.t0 - cause.t0)
        arrow = axis.glyphs.heads[3]
        before = [(f" {arrow}", "mark"), *before, (f", {earlier} earlier", "dim")]
    effect = causes.effect
    if effect is None:
        return before, []
    later = duration_text(max(effect.t0 - causes.t0, 0.0))
    after: Line = [("then ", "bold"), (effect.name, ""), (_place(effect), "dim")]
    if effect.t0 >= axis.t1:
        after += [(f", {later} later ", "dim"), (axis.glyphs.heads[1], "mark")]
    return before, after


def _place(linked: Linked) -> str:
    """Which op it is and where it was served."""
    return f" (op {linked.op}, {linked.component})"
