"""Orders in which a race is flipped, against reachability over the edges.

Nothing of the order that they come from is used here: each pair of ops that touch one
byte, and that the edges put in order, stays in it.
"""

from collections import defaultdict

import plain_frames
import plain_ops
import plain_order
import pytest
import random_races
from test_races_of_random_programs import GAPS, recorded, seeds

from kernbench.replay import ReplaySession
from kernbench.replay.races.flipped import Flipper
from kernbench.replay.races.search import races_of
from kernbench.trace import Trace


def pairs_in_order(recording):
    """(op, op) of the accesses to one byte that the edges put in this order."""
    order = plain_order.Order(recording)
    touched = defaultdict(list)
    for op in recording.ops:
        for mode, region in plain_ops.touched(op):
            for addr in set(region.addresses):
                touched[region.space, addr].append((op, mode, region))
    found = set()
    known = {}
    for accesses in touched.values():
        for j, other in enumerate(accesses):
            for one in accesses[:j]:
                if "w" not in (one[1], other[1]):
                    continue
                key = one[0].row, one[1], other[0].row, other[1], one[2].space
                if key not in known:
                    of_host = not all(map(order.is_kernels, (one[0], other[0])))
                    known[key] = of_host or order.is_before(one, other)
                if known[key] and one[0].row != other[0].row:
                    found.add((one[0].position, other[0].position))
    return found


@pytest.mark.parametrize("seed", seeds(3, 30, 300))
def test_only_what_is_in_no_order_changes_places(seed, tmp_path):
    path = recorded(random_races.program(seed, GAPS), tmp_path)
    trace = Trace.open(path)
    kept = pairs_in_order(plain_frames.read(path))
    history = ReplaySession(trace).index.history
    races = races_of(trace, history.touched, history.allocs)
    rows = history.touched.row
    flipper = Flipper(trace, history)
    positions = trace.executable_positions
    for earlier, later in zip(races.earlier, races.later, strict=True):
        first, second = sorted((int(rows[earlier]), int(rows[later])))
        steps = flipper.steps(first, second)
        if steps is None:
            continue
        since = history.executed(first - 1)
        assert sorted(steps) == [*range(since, history.steps)]
        place = {int(positions[step]): at for at, step in enumerate(steps)}
        assert place[first] > place[second]
        assert not [
            (one, other)
            for one, other in kept
            if one in place and other in place and place[one] > place[other]
        ]
