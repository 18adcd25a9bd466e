"""The bench that `kernbench new` writes runs, is right, and keeps what is there."""

import pytest
from click.testing import CliRunner

from kernbench.cli import main
from kernbench.runtime_api import run_bench


def asked(*words):
    return CliRunner().invoke(main, ["new", *map(str, words)])


@pytest.mark.slow
def test_it_runs_and_verifies_as_it_is_written(tmp_path):
    file = tmp_path / "my_kernel.py"
    result = asked(file)
    assert result.exit_code == 0
    assert result.output == f"kernbench run {file}\n"
    assert run_bench(str(file), verify=True).report.ok


@pytest.mark.parametrize(("rows", "block"), [(61, 4), (9, 100), (64, 1)])
@pytest.mark.slow
def test_its_rows_need_not_divide(tmp_path, rows, block):
    file = tmp_path / "my_kernel.py"
    asked(file)
    params = {"rows": rows, "block": block, "columns": 32}
    assert run_bench(str(file), params=params, verify=True).report.ok


def test_what_is_there_is_kept(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("mine")
    result = asked(file)
    assert result.exit_code == 2
    assert "it exists; give another name" in result.output
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["kernel.txt", "my-kernel.py", "1.py", "no/a.py"])
def test_a_file_that_cannot_be_is_refused(tmp_path, name):
    result = asked(tmp_path / name)
    assert result.exit_code == 2
    assert str(tmp_path / name) in result.output
    assert list(tmp_path.iterdir()) == []
