"""``torch.distributed``: the group of the ranks, and its collectives (ADR-0032 D5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kernbench.ccl.config import AlgorithmSpec, CclSpec, load_ccl
from kernbench.ccl.contract import Algorithm
from kernbench.ccl.kernels import OPS
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from kernbench.ccl.topologies import sip_shape
from kernbench.errors import UsageError
from kernbench.runtime_api.multiprocessing import Multiprocessing
from kernbench.runtime_api.registry import one_of
from kernbench.runtime_api.tensor import Tensor
from kernbench.sim_engine.engine import HOST, GraphEngine
from kernbench.topology.graph import Place

Launch: TypeAlias = Callable[..., None]
"""``torch.launch``: takes a name, a kernel and its arguments."""


class AhbmCCLBackend:
    """The communicator: an algorithm of ccl.yaml on the SIP topology.

    Making one wires the queues of the engine, which is done once. TopologyError if the
    algorithm does not fit the machine.
    """

    name = "ahbm"

    def __init__(
        self,
        engine: GraphEngine,
        launch: Launch,
        ccl: CclSpec,
        algorithm: str | None,
    ) -> None:
        self._engine = engine
        self._launch = launch
        spec = engine.graph.spec
        sips = spec.system.sips
        self.cfg = ccl.of(algorithm)
        self._algorithm = Algorithm(self.cfg.name, self.cfg.load())
        self._mesh = spec.sip.cube_mesh
        self.world_size = sips.count
        kind = self._algorithm.kind(sips.topology)
        self._sip_topo = (kind, *sip_shape(sips.topology, sips.count))
        self._root = self._algorithm.root(self.cfg.root_cube, self._mesh)
        configure_sfr_intercube_multisip(engine, spec, self.cfg)

    def all_reduce(self, tensor: Tensor, op: str, rank: int) -> None:
        """Launch the kernel; the scheduler drains it once all ranks have parked."""
        mesh = self._mesh
        places = [(rank, cube, 0) for cube in range(mesh.w * mesh.h)]
        n_elem = self._elements_a_cube(tensor, places)
        sizes = self._algorithm.sizes(self.world_size, n_elem, mesh)
        kernel = self._algorithm.kernel(op, self._root)
        overhead_ns = self.cfg.call_overhead_ns
        if overhead_ns:
            site = self._engine.sim.sites.here()
            self._engine.host_work("software of all_reduce", overhead_ns, places, site)
        self._launch("all_reduce", kernel, tensor, *sizes, rank, *self._sip_topo)

    def _elements_a_cube(self, tensor: Tensor, places: list[Place]) -> int:
        """How many elements each of ``places`` holds.

        UsageError if the tensor is not laid out as ADR-0032 D2 has it.
        """
        held = [self._engine.place_of(shard.addr) for shard in tensor.shards]
        sizes = {shard.nbytes for shard in tensor.shards}
        if held != places or len(sizes) != 1:
            raise UsageError(
                f"all_reduce of {tensor!r}: the first PE of each of the {len(places)} "
                "cubes of the rank's SIP must hold equally many elements: "
                f"shape ({len(places)}, n) with DPPolicy(cube='row_wise', num_pes=1)"
            )
        return sizes.pop() // tensor.ptr.itemsize


class Distributed:
    """The process group of the ranks.

    ``init_process_group`` in the bench is for all ranks, in a rank for its own. What
    else is called before it raises RuntimeError, as does a rank's call outside of a
    rank.
    """

    def __init__(
        self,
        engine: GraphEngine,
        processes: Multiprocessing,
        launch: Launch,
        ccl: CclSpec | None = None,
    ) -> None:
        self._engine = engine
        self._processes = processes
        self._launch = launch
        self._ccl = ccl
        self._backend: AhbmCCLBackend | None = None

    def init_process_group(
        self, backend: str = "ahbm", *, algorithm: str | None = None
    ) -> None:
        """Join the group, which the first to join wires.

        ``algorithm`` is one of ccl.yaml; None is its default. ValueError for another
        backend, RuntimeError if called twice, or for another algorithm than the group
        has already.
        """
        if backend != "ahbm":
            raise ValueError(
                f"init_process_group: unknown backend {backend!r}; valid: 'ahbm'"
            )
        stream = self._engine.stream
        if self._has_joined(stream):
            raise RuntimeError(
                "init_process_group: called twice; a process joins its group once"
            )
        if stream != HOST:
            self._rank("init_process_group")
        if self._backend is None:
            ccl = self._ccl or load_ccl()
            self._backend = AhbmCCLBackend(self._engine, self._launch, ccl, algorithm)
        wired = self._backend.cfg.name
        if algorithm not in (None, wired):
            raise RuntimeError(
                f"init_process_group: algorithm={algorithm!r}, "
                f"but the group is wired for {wired!r}"
            )
        self._processes.joined.add(stream)

    @property
    def algorithm(self) -> AlgorithmSpec:
        """The algorithm of the group, as ccl.yaml has it."""
        return self._group("algorithm").cfg

    def get_rank(self) -> int:
        """The rank of the caller."""
        self._group("get_rank")
        return self._rank("get_rank")

    def get_world_size(self) -> int:
        """How many ranks there are: one a SIP."""
        return self._group("get_world_size").world_size

    def get_backend(self) -> str:
        """The name of the backend."""
        return self._group("get_backend").name

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> None:
        """Reduce, in place, the rows of all cubes of all ranks, of which each has one.

        Each gets the result. ``op`` is "sum", "max" or "min". Returns at once, as a
        launch does. UsageError for another ``op``, and for a tensor that is not laid
        out as ADR-0032 D2 has it.
        """
        one_of(tuple(OPS), op=op)
        group = self._group("all_reduce")
        group.all_reduce(tensor, op, self._rank("all_reduce"))

    def barrier(self) -> None:
        """Wait until all that every rank has asked for before its barrier is done."""
        group = self._group("barrier")
        self._rank("barrier")
        self._engine.barrier(group.world_size, self._engine.sim.sites.here())
        self._processes.drain()

    def _has_joined(self, stream: int) -> bool:
        """Whether a process has joined, or the bench has for all of them."""
        return bool(self._processes.joined & {stream, HOST})

    def _group(self, call: str) -> AhbmCCLBackend:
        """The group of the caller; RuntimeError if it is in none."""
        if self._backend is None or not self._has_joined(self._engine.stream):
            raise RuntimeError(
                f"{call}: call torch.distributed.init_process_group first"
            )
        return self._backend

    def _rank(self, call: str) -> int:
        """The rank of the caller; RuntimeError if the ranks are not one a SIP."""
        ranks = self._processes.nprocs
        sips = self._engine.graph.spec.system.sips.count
        if ranks != sips:
            raise RuntimeError(
                f"{call}: the group has a rank a SIP; call it in "
                f"torch.multiprocessing.spawn with nprocs={sips} (now {ranks})"
            )
        return self._engine.stream
