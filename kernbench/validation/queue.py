"""One link under random arrivals, against the formula of the M/D/1 queue.

Packets of one flit come to a link of one flit a cycle at random times (a Poisson
process). At a load of rho they wait rho / (2 (1 - rho)) cycles in the mean (Pollaczek
and Khinchine).
"""

from math import sqrt
from statistics import fmean, stdev

import numpy as np

from kernbench.common.exact_time import exact_ns
from kernbench.common.messages import MsgBase, Transaction
from kernbench.components.base import Process
from kernbench.components.network import Delivery
from kernbench.policy.routing.router import router_node
from kernbench.sim_engine.engine import GraphEngine
from kernbench.validation.mesh import FLIT_BYTES, mesh_of
from kernbench.validation.table import Bound, Row, Table

LOADS = (0.3, 0.6, 0.9)
PACKETS = 100_000
_BATCHES = 20


def mean_wait(
    load: float, packets: int = PACKETS, seed: int = 0
) -> tuple[float, float]:
    """Mean wait in cycles of packets at a link of that load, and its standard error.

    The first tenth of the packets is not counted.
    """
    random = np.random.default_rng(seed)
    gaps = random.exponential(1 / load, packets)
    engine = GraphEngine(mesh_of(4), op_logger=None)
    env = engine.env
    router = router_node(0, 0, 0, 0)
    owners = [MsgBase() for _ in range(packets)]

    def arrivals() -> Process:
        """One packet after the other."""
        for owner, gap in zip(owners, gaps, strict=True):
            yield env.timeout(exact_ns(gap))
            path = (f"{router}.source", router)
            Delivery(engine.network, Transaction(path, FLIT_BYTES, owner)).start()

    env.process(arrivals())
    env.run()
    waits = [
        sum(t1 - t0 for _, _, t0, t1, _ in owner.waits)
        for owner in owners[packets // 10 :]
    ]
    size = len(waits) // _BATCHES
    means = [fmean(waits[i * size : (i + 1) * size]) for i in range(_BATCHES)]
    return fmean(waits), stdev(means) / sqrt(_BATCHES)


def queue_table() -> Table:
    """Mean waits at one link."""
    rows = []
    for load in LOADS:
        wait, error = mean_wait(load)
        rows.append(
            Row(
                what=f"one link, Poisson arrivals, load {load:g}: mean wait",
                source="M/D/1",
                reference=load / (2 * (1 - load)),
                model=wait,
                unit="cycles",
                bound=Bound(5),
                standard_error=error,
            )
        )
    return Table("Waits at one link", rows)
