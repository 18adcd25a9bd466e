"""Files of strangers: what opens is exported, or refused with one of our errors."""

import json
import random
import shutil
from pathlib import Path

import pytest
from fuzz import broken

from kernbench.errors import KernbenchError
from kernbench.trace import Trace
from kernbench.trace.export import EXPORTERS, export

COUNTS = [20, pytest.param(1000, marks=pytest.mark.soak)]
TRACES = Path(__file__).parents[3] / "traces"


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", COUNTS, ids=["some", "many"])
@pytest.mark.parametrize("name", EXPORTERS)
def test_a_broken_file_is_exported_or_refused(tmp_path, name, count):
    names = ("matmul", "fault_missing_wait")
    files = [(TRACES / f"{name}.msgpack").read_bytes() for name in names]
    path = tmp_path / "broken.msgpack"
    out = tmp_path / "out"
    exported = 0
    for number in range(count):
        _, data = broken(random.Random(number), files)
        path.write_bytes(data)
        try:
            export(Trace.open(path), name, str(out))
        except KernbenchError:
            assert not out.exists()
            continue
        exported += 1
        if out.is_dir():
            shutil.rmtree(out)
        else:
            if name == "perfetto":
                json.loads(out.read_text(), parse_constant=pytest.fail)
            out.unlink()
    assert exported > count / 2
