"""What kernels print and assert is seen by who runs them."""

import json

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.common.kernel_texts import MOST_TEXTS, KernelText, KernelTexts

BENCH = """\
import numpy as np
from kernbench.benches import bench

def kernel(x, tl):
    got = tl.load(x)
    tl.device_print("x[3] is", got[3], "\\x1b[2J")
    {more}

@bench(name="says", description="says something")
def run(torch):
    torch.launch("k", kernel, torch.tensor(np.arange(8, dtype="f4"), name="x"))
"""


@pytest.fixture
def ran(tmp_path):
    def ran(*words, more="pass"):
        file = tmp_path / "says.py"
        file.write_text(BENCH.format(more=more))
        return CliRunner().invoke(main, ["run", str(file), *words])

    return ran


def test_a_run_prints_what_its_kernels_print(ran):
    result = ran()
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert first.startswith("sip0.cube0.pe0 ")
    assert first.endswith(r"says.py:6: x[3] is 3.0 \x1b[2J")


def test_json_has_it_as_data(ran):
    result = json.loads(ran("--json").stdout)
    (text,) = result["texts"]
    assert text["message"] == "x[3] is 3.0 \x1b[2J"
    assert text["pe"] == "sip0.cube0.pe0.pe_cpu"
    assert text["level"] == "print"


def test_what_was_printed_before_an_assert_is_there(ran):
    result = ran(more="tl.device_assert(got[3] == 4, 'the fourth')")
    assert result.exit_code == 1
    printed, asserted = result.stdout.splitlines()
    assert "x[3] is 3.0" in printed
    assert asserted.endswith("says.py:7: device_assert failed: the fourth")


def test_texts_beyond_those_kept_are_counted_and_shown():
    texts = KernelTexts()
    seen = []
    texts.on_text = seen.append
    for i in range(MOST_TEXTS + 3):
        texts.add(KernelText(float(i), "pe", "k.py:1", "print", str(i)))
    assert (len(texts.rows), texts.count, len(seen)) == (MOST_TEXTS, *[len(seen)] * 2)
    assert texts.count == MOST_TEXTS + 3
