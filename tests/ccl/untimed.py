"""The kernels of ccl without a machine: greenlets, queues and numpy arrays, and no
time.
"""

from collections import Counter, defaultdict, deque
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import greenlet
import numpy as np

from kernbench.ccl.topologies import TOPO_NAME_TO_KIND, grid, sip_neighbors, sip_shape
from kernbench.common.dtypes import itemsize, np_dtype
from kernbench.runtime_api.torch import TensorPtr

OPPOSITE = {"N": "S", "S": "N", "E": "W", "W": "E"}
OPPOSITE |= {f"global_{way}": f"global_{back}" for way, back in OPPOSITE.items()}


class Handle:
    """A tensor in scratch, or a view of one."""

    def __init__(self, data, dtype):
        self.data = data
        self.dtype = dtype
        self.shape = data.shape


class Tl:
    """``tl`` of one PE; ``memory`` holds the rows of its SIP's tensor."""

    def __init__(self, sip, cube, ways, queues, memory):
        self.place = (0, cube, sip)
        self.ways = ways
        self.queues = queues
        self.memory = memory
        self.sent = Counter()
        self.received = 0

    def program_id(self, axis):
        return self.place[axis]

    def scope(self):
        return nullcontext()

    def load(self, ptr, shape, dtype):
        return Handle(
            self.memory[int(ptr) // (shape[0] * itemsize(dtype))].copy(), dtype
        )

    def store(self, ptr, handle):
        self.memory[int(ptr) // handle.data.nbytes] = handle.data

    def slice(self, x, starts, shape):
        return Handle(x.data[starts[0] : starts[0] + shape[0]], x.dtype)

    def send(self, way, handle, wait=True):
        self.sent[way] += handle.data.nbytes
        self.queues[self.ways[way], OPPOSITE[way]].append(handle.data.copy())

    def recv(self, way, shape, dtype="f16", out=None):
        queue = self.queues[(self.place[2], self.place[1]), way]
        assert way in self.ways, f"{way} is not wired at {self.place}"
        while not queue:
            greenlet.getcurrent().parent.switch()
        came = queue.popleft()
        self.received += 1
        assert (came.shape, came.dtype) == (shape, np_dtype(dtype))
        if out is None:
            return Handle(came, dtype)
        out.data[...] = came
        return out

    def __getattr__(self, op):
        def call(a, b, out):
            out.data[...] = getattr(np, op)(a.data, b.data)

        return call


def run(algorithm, data, dtype, topology, mesh, op="sum"):
    """Run ``algorithm`` on ``data`` (sips, cubes, n_elem) in rounds; ``.data`` is what
    it left.
    """
    sips, cubes, n_elem = data.shape
    memory = data.astype(np_dtype(dtype))
    queues = defaultdict(deque)
    shape = sip_shape(topology, sips)
    kind = TOPO_NAME_TO_KIND[topology]
    tls = []
    running = []
    for sip in range(sips):
        across = sip_neighbors(topology, sip, sips)
        for cube in range(cubes):
            ways = {way: (sip, peer) for way, peer in grid(cube, *mesh).items()}
            ways |= {way: (peer, cube) for way, peer in across.items()}
            tls.append(Tl(sip, cube, ways, queues, memory[sip]))
            args = (*algorithm.kernel_args(sips, n_elem, *mesh), sip, kind, *shape)
            running.append(
                greenlet.greenlet(partial(call, algorithm.kernel, args, tls[-1], op))
            )
    for kernel in running:
        kernel.switch(TensorPtr(0, dtype))
    while running := [kernel for kernel in running if not kernel.dead]:
        before = sum(tl.received for tl in tls), len(running)
        for kernel in running:
            kernel.switch()
        left = sum(not kernel.dead for kernel in running)
        assert before != (sum(tl.received for tl in tls), left), "nothing can go on"
    assert not any(queues.values()), "a payload was never received"
    return SimpleNamespace(data=memory, sent=[tl.sent for tl in tls])


def call(kernel, args, tl, op, ptr):
    kernel(ptr, *args, tl, op=op)
