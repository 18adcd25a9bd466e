"""Every number of the machine says what it rests on, where a user looks for it."""

import pytest
import yaml
from click.testing import CliRunner

from kernbench import docs
from kernbench.ccl.config import DefaultsSpec
from kernbench.cli import main
from kernbench.topology import TopologySpec, load_spec
from kernbench.topology.provenance import (
    Provenance,
    as_yaml,
    assumed,
    defaults_of,
    of_class,
)
from kernbench.topology.section import NonNegative, Section

DEFAULTS = list(defaults_of(TopologySpec))


@pytest.mark.parametrize(
    "default", [*DEFAULTS, *defaults_of(DefaultsSpec)], ids=lambda each: each.path
)
def test_a_field_says_what_its_default_rests_on(default):
    rests_on = default.provenance
    assert rests_on is not None, (
        f"{default.path}: say what {default.value} rests on, with measured, of_class "
        "or assumed of kernbench/topology/provenance.py"
    )
    assert rests_on.basis in ("measured", "class", "assumed")
    assert rests_on.source.strip()
    if rests_on.basis == "assumed":
        assert rests_on.year is None
    else:
        assert 1990 < rests_on.year < 2100


def test_all_fields_of_the_machine_are_asked_but_the_names_of_classes():
    def leaves(value, path=""):
        if not isinstance(value, dict):
            return {path}
        return {
            leaf
            for name, below in value.items()
            for leaf in leaves(below, f"{path}.{name}".lstrip("."))
        }

    everything = leaves(yaml.safe_load(as_yaml(TopologySpec())))
    asked = {default.path for default in DEFAULTS}
    assert {path.partition(".")[0] for path in everything - asked} == {"components"}


def test_a_field_without_provenance_is_found():
    class Wire(Section):
        delay_ns: NonNegative = assumed(1.0, "a guess")
        width_mm: NonNegative = 2.0

    assert [(each.path, each.provenance) for each in defaults_of(Wire)] == [
        ("delay_ns", Provenance("assumed", "a guess")),
        ("width_mm", None),
    ]


def test_a_default_with_provenance_is_the_default():
    class Wire(Section):
        delay_ns: NonNegative = of_class(1.5, "glass", 1970)

    assert Wire().delay_ns == Wire.delay_ns == 1.5
    assert Wire(2.0).delay_ns == 2.0


def test_info_prints_a_file_that_loads_with_the_provenance_of_each_field(tmp_path):
    text = CliRunner().invoke(main, ["info", "--topology"]).output
    file = tmp_path / "machine.yaml"
    file.write_text(text)
    assert load_spec(file) == TopologySpec()
    assert repr(load_spec(file)) == repr(TopologySpec())
    assert "bw_gbs: 128.0  # class, UCIe 1.0, 64 lanes at 16 GT/s, 2022\n" in text
    comments = [line for line in text.splitlines() if "  # " in line]
    for default in DEFAULTS:
        assert any(line.endswith(f"# {default.provenance}") for line in comments)


def test_the_page_has_a_row_of_each_field_with_what_it_rests_on():
    _, _, section = docs.page("machine").partition("## Fields and defaults")
    rows = section.partition("\n## ")[0].splitlines()
    assert (
        "| `cube.ucie.bw_gbs` | 128 | class | UCIe 1.0, 64 lanes at 16 GT/s | 2022 |"
    ) in rows
    assert "| `pe.cpu.issue_cycles` | 1 | assumed | " in "\n".join(rows)
    fields = [row.split("`")[1] for row in rows if row.startswith("| `")]
    assert fields == [each.path for each in DEFAULTS]
    about = "- `cube.sram`: SRAM of a cube; its size fits the 34 offset bits"
    assert any(row.startswith(about) for row in rows)
