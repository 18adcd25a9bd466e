"""The results of a matrix product on machines of three sizes, against numpy's."""

from kernbench.runtime_api import run_bench
from kernbench.validation.table import Row, Table

MACHINES = {
    "1 SIP of 1 cube of 1 PE": {
        "sips.count": 1,
        "cube_mesh.w": 1,
        "cube_mesh.h": 1,
        "cube.pes": 1,
        "slices_per_cube": 1,
    },
    "1 SIP of 1 cube of 8 PEs": {"sips.count": 1, "cube_mesh.w": 1, "cube_mesh.h": 1},
    "2 SIPs of 16 cubes of 8 PEs": {},
}
"""Fields of each machine that are not the default."""


def matmul_table() -> Table:
    """How many elements of 256 x 256 x 256 in f16 are within the tolerance."""
    rows = []
    for machine, fields in MACHINES.items():
        report = run_bench("matmul", spec=fields).report
        assert report is not None
        verdict = report.by_tensor()[0]
        right = verdict.elements - verdict.mismatches
        what = f"matmul on {machine}: elements within the tolerance"
        rows.append(Row(what, "numpy", verdict.elements, right, "elements"))
    return Table("Results", rows)
