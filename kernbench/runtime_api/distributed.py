"""``torch.distributed``: the process group of the ranks, and its collectives (ADR-0032 D5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernbench.ccl.config import AlgorithmSpec, CclSpec, load_ccl
from kernbench.ccl.kernels import OPS
from kernbench.ccl.sfr_config import configure_sfr_intercube_multisip
from kernbench.ccl.topologies import sip_shape
from kernbench.errors import UsageError
from kernbench.runtime_api.registry import one_of
from kernbench.sim_engine.engine import HOST

if TYPE_CHECKING:
    from kernbench.runtime_api.torch import Tensor, Torch


class AhbmCCLBackend:
    """The communicator: an algorithm of ccl.yaml on the SIP topology, its queues wired once."""

    name = "ahbm"

    def __init__(self, torch: Torch, ccl: CclSpec, algorithm: str | None) -> None:
        self._torch = torch
        spec = torch.engine.graph.spec
        self.cfg = ccl.of(algorithm)
        self._module = self.cfg.load()
        sips, self._mesh = spec.system.sips, spec.sip.cube_mesh
        self.world_size = sips.count
        kind = self._module.TOPO_NAME_TO_KIND[sips.topology]
        self._sip_topo = (kind, *sip_shape(sips.topology, sips.count))
        configure_sfr_intercube_multisip(torch.engine, spec, self.cfg)

    def all_reduce(self, tensor: Tensor, op: str, rank: int) -> None:
        """Launch the kernel; the scheduler drains it once all ranks have parked."""
        mesh = self._mesh
        n_elem = self._elements(
            tensor, [(rank, cube, 0) for cube in range(mesh.w * mesh.h)]
        )
        sizes = self._module.kernel_args(self.world_size, n_elem, mesh.w, mesh.h)
        kernel = partial(self._module.kernel, op=op)
        self._torch.launch("all_reduce", kernel, tensor, *sizes, rank, *self._sip_topo)

    def _elements(self, tensor: Tensor, places: list[tuple[int, int, int]]) -> int:
        """How many a cube holds; UsageError if they are not laid out as ADR-0032 D2 has it."""
        sizes = {shard.nbytes for shard in tensor.shards}
        held = [self._torch.engine.place_of(shard.addr) for shard in tensor.shards]
        if held != places or len(sizes) != 1:
            raise UsageError(
                f"all_reduce of {tensor!r}: the first PE of each of the {len(places)} cubes of the "
                f"rank's SIP must hold equally many elements: shape ({len(places)}, n) with "
                "DPPolicy(cube='row_wise', num_pes=1)"
            )
        return sizes.pop() // tensor.ptr.itemsize


class Distributed:
    """The process group; ``init_process_group`` in the bench is for all ranks, in a rank its own.

    Whatever else is called before it raises RuntimeError, as does a rank's call outside of a rank.
    """

    def __init__(self, torch: Torch, ccl: CclSpec | None = None) -> None:
        self._torch = torch
        self._ccl = ccl
        self._backend: AhbmCCLBackend | None = None

    def init_process_group(
        self, backend: str = "ahbm", *, algorithm: str | None = None
    ) -> None:
        """Join the group, which the first to join wires; ``algorithm`` is one of ccl.yaml.

        ValueError for another backend, RuntimeError if called twice.
        """
        if backend != "ahbm":
            raise ValueError(
                f"init_process_group: unknown backend {backend!r}; valid: 'ahbm'"
            )
        processes, stream = self._torch.multiprocessing, self._torch.engine.stream
        if processes.joined & {stream, HOST}:
            raise RuntimeError(
                "init_process_group: called twice; a process joins its group once"
            )
        if stream != HOST:
            self._rank("init_process_group")
        if self._backend is None:
            self._backend = AhbmCCLBackend(
                self._torch, self._ccl or load_ccl(), algorithm
            )
        elif algorithm not in (None, wired := self._backend.cfg.name):
            raise RuntimeError(
                f"init_process_group: algorithm={algorithm!r}, but the group is wired for {wired!r}"
            )
        processes.joined.add(stream)

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
        """Reduce, in place, the rows of all cubes of all ranks, one a cube; each gets the result.

        ``op`` is "sum", "max" or "min". Returns at once, as a launch does.
        """
        one_of(tuple(OPS), op=op)
        self._group("all_reduce").all_reduce(tensor, op, self._rank("all_reduce"))

    def barrier(self) -> None:
        """Wait until all that every rank has asked for before its barrier is done."""
        group, engine = self._group("barrier"), self._torch.engine
        self._rank("barrier")
        engine.barrier(group.world_size, engine.sim.sites.here())
        self._torch.multiprocessing.drain()

    def _group(self, call: str) -> AhbmCCLBackend:
        joined = self._torch.multiprocessing.joined & {self._torch.engine.stream, HOST}
        if self._backend is None or not joined:
            raise RuntimeError(
                f"{call}: call torch.distributed.init_process_group first"
            )
        return self._backend

    def _rank(self, call: str) -> int:
        ranks, sips = (
            self._torch.multiprocessing.nprocs,
            self._torch.engine.graph.spec.system.sips,
        )
        if ranks != sips.count:
            raise RuntimeError(
                f"{call}: the group has a rank a SIP; call it in torch.multiprocessing.spawn with "
                f"nprocs={sips.count} (now {ranks})"
            )
        return self._torch.engine.stream
