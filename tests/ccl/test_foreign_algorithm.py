"""An all-reduce of a user: one file, a plugin, and an entry of a ccl.yaml for it."""

import numpy as np
import pytest

from kernbench.ccl.config import load_ccl
from kernbench.errors import KernbenchError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.runtime_api.user_files import load_plugins
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import load_topology

ROWS = DPPolicy(cube="row_wise", num_pes=1)
CCL = """
defaults: {algorithm: mine}
algorithms:
  mine: {module: MODULE}
"""
# Exactly what ADR-0032 D7 asks for: no operator, and no mesh.
EXACTLY_D7 = """
from kernbench.ccl.algorithms import intercube_allreduce as ours
from kernbench.ccl.topologies import (
    SIP_TOPO_MESH, SIP_TOPO_RING, SIP_TOPO_TORUS, TOPO_NAME_TO_KIND
)

def kernel_args(world_size, n_elem):
    return n_elem, 2, 1, world_size

def kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, sip_topo_kind,
           sip_topo_w, sip_topo_h, tl):
    ours.kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, sip_topo_kind,
                sip_topo_w, sip_topo_h, tl=tl)
"""
WITH_OPERATOR = EXACTLY_D7.replace("h, tl):", "h, tl, *, op='sum'):").replace(
    "tl=tl)", "tl=tl, op=op)"
)
WITH_MESH = EXACTLY_D7.replace(
    "(world_size, n_elem):\n    return n_elem, 2, 1,",
    "(world_size, n_elem, cube_w, cube_h):\n    return n_elem, cube_w, cube_h,",
)


@pytest.fixture
def reduced(tmp_path):
    """reduced(module, text, op) -> what each rank reads after an all-reduce by it."""

    def reduced(module, text, op="sum"):
        plugin = tmp_path / f"{module}.py"
        plugin.write_text(text)
        load_plugins([plugin])
        (tmp_path / "ccl.yaml").write_text(CCL.replace("MODULE", module))
        two_cubes = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
        engine = GraphEngine(load_topology(None, two_cubes))
        torch = Torch(engine, ccl=load_ccl(tmp_path / "ccl.yaml"))
        read = {}

        def process(rank):
            torch.distributed.init_process_group()
            x = torch.full((2, 5), rank + 1, "f32", dp=ROWS)
            torch.distributed.all_reduce(x, op)
            read[rank] = x.numpy()

        engine.run(lambda _: torch.multiprocessing.spawn(process))
        return [read[0], read[1]]

    return reduced


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("exactly_d7", EXACTLY_D7),
        ("d7_with_operator", WITH_OPERATOR),
        ("d7_with_mesh", WITH_MESH),
    ],
)
def test_a_module_is_given_what_its_signatures_take(reduced, module, text):
    for rows in reduced(module, text):
        assert np.array_equal(rows, np.full((2, 5), 2 * (1 + 2)))


def test_a_module_with_an_operator_is_given_it(reduced):
    for rows in reduced("maximum_by_operator", WITH_OPERATOR, op="max"):
        assert np.array_equal(rows, np.full((2, 5), 2))


def test_a_module_without_operators_refuses_another_than_the_sum(reduced):
    with pytest.raises(KernbenchError, match=r"mine.* takes no op; valid: sum"):
        reduced("sums_only", EXACTLY_D7, op="max")
