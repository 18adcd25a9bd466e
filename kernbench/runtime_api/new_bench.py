"""A bench to start from: the file that ``kernbench new`` writes."""

from __future__ import annotations

from pathlib import Path

from kernbench.errors import UsageError

_TEXT = '''\
"""{name}: y = x * sigmoid(x) of a matrix whose rows lie over the PEs of a cube.

    kernbench run {file} --trace {name}.msgpack
    kernbench-tui {name}.msgpack
"""

import numpy as np

from kernbench.benches import bench
from kernbench.runtime_api import DPPolicy


def kernel(x, y, block, tl):
    """Runs on every PE that holds rows of x and of y (kernbench doc tl)."""
    rows, columns = x.shape
    share = tl.cdiv(rows, tl.num_programs(0))
    first = share * tl.program_id(0)
    last = min(first + share, rows)
    for low in range(first, last, block):
        high = min(low + block, last)
        with tl.scope():  # its scratch is free again for the next block
            part = tl.load(x[low:high, :])
            tl.store(y[low:high, :], part * tl.sigmoid(part))


@bench(name="{name}", description="x * sigmoid(x) of every element")
def run(torch, rows=64, columns=256, block=4):
    """Parameters are set by --set rows=128; what is expected is computed with numpy."""
    by_rows = DPPolicy(pe="row_wise", num_cubes=1)
    data = torch.rng.standard_normal((rows, columns)).astype("f4")
    x = torch.tensor(data, dp=by_rows, name="x")
    y = torch.empty(x.shape, x.dtype, by_rows, name="y")
    torch.launch("{name}", kernel, x, y, block=block)
    torch.expect(y, data / (1 + np.exp(-data)))
'''


def write_new(path: Path) -> None:
    """Write a bench that runs, and is named like its file.

    UsageError if the file exists, cannot be written, or is not named like a module.
    """
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise UsageError(
            f"new {str(path)!r}: the name of a bench is letters, digits and _, and its "
            "file ends in .py, as my_kernel.py"
        )
    text = _TEXT.format(name=path.stem, file=path.name)
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"new {str(path)!r}: it exists; give another name") from None
    except OSError as error:
        raise UsageError(f"new {str(path)!r}: {error.strerror}") from error
