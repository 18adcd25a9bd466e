"""Models of PE_DMA that hold each command before its service, for ``score.py``.

A plugin: ``--plugin tests/mutations/held.py --spec components.pe_dma.impl=held:Held3``.
The number of a class is the seed of its delays.
"""

import random

from kernbench.components.base import Burst
from kernbench.components.builtin.pe_dma import PeDma

DELAYS_NS = (0.0, 50.0, 200.0, 800.0, 3000.0)
SEEDS = range(20)


class _Held(PeDma):
    """Holds what it serves for one of DELAYS_NS: loads, stores, tiles and payloads.

    What is held has its slot, and has not started: nothing overtakes it, and ops of its
    own PE that must start after it wait, as for any op that cannot start yet.
    """

    seed = -1

    def __init__(self, node, sim):
        super().__init__(node, sim)
        self._random = random.Random(f"{self.seed} {node.id}")

    def run(self, env, msg):
        """Wait first; then what any PE_DMA does."""
        if not isinstance(msg, Burst):
            delay_ns = self._random.choice(DELAYS_NS)
            if delay_ns:
                msg.t_start = -1.0
                t0 = env.now
                yield env.timeout(delay_ns)
                msg.wait(self.node.id, "delayed", t0, env.now, None)
                msg.t_start = env.now
                self._on_process_start(env, msg)
        yield from super().run(env, msg)

    # What a burst takes is as the network knows it.
    known_run = run


for _seed in SEEDS:
    globals()[f"Held{_seed}"] = type(f"Held{_seed}", (_Held,), {"seed": _seed})
