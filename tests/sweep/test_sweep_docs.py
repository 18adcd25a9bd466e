"""The page of sweeps shows what is so."""

import re

import pytest
import yaml
from click.testing import CliRunner

from kernbench import docs
from kernbench.cli import main
from kernbench.sweep.columns import COLUMNS
from kernbench.sweep.space import _FIELDS, read_space

PAGE = docs.page("sweep")
SPACE = docs.FOLDER / "sweep.yaml"


def shown(start):
    """The block of the page that begins so, without its margin."""
    block = PAGE.partition(f"    {start}")[2].partition("\n\n")[0]
    lines = f"    {start}{block}".splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


def test_the_space_that_is_shown_is_the_file():
    assert shown("bench: matmul") == SPACE.read_text().rstrip()


def test_the_ranges_that_are_shown_are_read(tmp_path):
    text = shown("set:\n")
    assert set(yaml.safe_load(text)) == {"set", "spec"}
    file = tmp_path / "space.yaml"
    file.write_text(f"bench: matmul\n{text}\n")
    by_name = {axis.name: axis.values for axis in read_space(file).axes}
    assert by_name["tile"] == (16, 32, 64, 128)
    assert by_name["pe.clock_ghz"] == (1, 1.25, 1.5, 1.75, 2)
    assert list(by_name["cube.hbm.channels"]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert by_name["pcie_bw_gbs"] is None


def test_the_space_of_the_readme_is_read(tmp_path):
    block = (
        docs.page("run")
        .partition("    kernbench sweep space.yaml")[2]
        .partition("\n\n")[0]
    )
    text = "\n".join(line.partition("# ")[2] for line in block.splitlines())
    file = tmp_path / "space.yaml"
    file.write_text(text)
    space = read_space(file)
    assert space.grid_points == 2 * 3 * 2
    assert space.conditions
    assert len(space.objectives) == 2


def test_every_field_column_and_option_is_explained():
    assert [name for name in (*_FIELDS, *COLUMNS) if f"`{name}`" not in PAGE] == []
    commands = main.commands["sweep"].commands
    options = {
        name
        for command in commands.values()
        for option in command.params
        for name in option.opts
        if name.startswith("--")
    }
    unsaid = {name for name in options if name not in PAGE}
    assert unsaid <= {"--out"}


@pytest.mark.slow
def test_the_picture_is_what_its_commands_draw(tmp_path):
    for words in (
        ["sweep", str(SPACE), "-o", str(tmp_path / "results")],
        ["sweep", "show", str(tmp_path / "results"), "--svg", str(tmp_path / "a.svg")],
    ):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.stderr
    drawn = (tmp_path / "a.svg").read_text()
    assert without_rows(drawn) == without_rows((docs.FOLDER / "sweep.svg").read_text())


def without_rows(svg):
    """The picture without the numbers of rows, which another key makes others."""
    assert len(re.findall(r" \(row \d+\)</title>", svg)) == 30
    return re.sub(r" \(row \d+\)</title>", "</title>", svg)
