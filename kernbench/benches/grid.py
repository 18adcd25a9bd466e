"""Over which PEs the tensors of the shipped benches lie."""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from kernbench.common.arrays import Floats
from kernbench.common.dtypes import np_dtype
from kernbench.errors import UsageError
from kernbench.runtime_api.placement import DPPolicy
from kernbench.runtime_api.registry import at_least_one

Pes: TypeAlias = int | None
"""How many PEs take part: some of one cube, or whole cubes; None is all."""


def share(total: int, parts: int, index: int) -> range:
    """Part ``index`` of ``total`` rows split by ceiling, as a DPPolicy does.

    It may be empty.
    """
    step = -(-total // parts)
    return range(total)[index * step : (index + 1) * step]


@dataclass(frozen=True, slots=True)
class Grid:
    """The first ``cubes`` cubes, with their first ``pes`` PEs."""

    cubes: int
    pes: int

    @classmethod
    def of(cls, torch: Any, pes: Pes) -> Self:
        """``pes`` PEs of the machine, None: all.

        UsageError where they fill no whole cubes.
        """
        spec = torch.engine.graph.spec
        width = spec.cube.pes
        mesh = spec.sip.cube_mesh
        total = spec.system.sips.count * mesh.w * mesh.h * width
        at_least_one(pes=pes)
        count = total if pes is None else pes
        if count <= width:
            return cls(1, count)
        if count % width or count > total:
            raise UsageError(
                f"pes={pes}: valid are 1 to {width}, "
                f"or a multiple of {width} up to {total}"
            )
        return cls(count // width, width)

    def dp(self, cube: str = "row_wise", pe: str = "row_wise") -> DPPolicy:
        """A tensor over this grid."""
        return DPPolicy(cube, pe, self.cubes, self.pes)


def rounded(data: npt.ArrayLike, dtype: str) -> Floats:
    """What ``dtype`` keeps of ``data``, in f64 for a reference."""
    return np.asarray(data).astype(np_dtype(dtype)).astype(np.float64)
