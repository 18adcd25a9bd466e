from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import kernbench.topology.spec as spec_module
from kernbench.errors import TopologyError
from kernbench.topology import TopologySpec, build_topology, load_spec, load_topology
from kernbench.topology.spec import ComponentSpec, CubeSpec, HbmSpec, PeSpec

SHIPPED = Path(spec_module.__file__).parents[1] / "configs" / "topology.yaml"


@pytest.fixture
def load(tmp_path):
    def load(text):
        file = tmp_path / "machine.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_spec(file)

    return load


def test_the_defaults_are_the_shipped_file():
    assert load_spec(SHIPPED) == TopologySpec()
    assert repr(load_spec(SHIPPED)) == repr(
        TopologySpec()
    )  # numbers of the same types too


def test_the_shipped_file_names_every_field():
    def paths(value):
        if not isinstance(value, dict):
            return {""}
        return {
            f"{key}.{rest}" for key, below in value.items() for rest in paths(below)
        }

    def of(spec):
        fields = getattr(spec, "__dataclass_fields__", None)
        if fields is None:
            return {""}
        return {f"{name}.{rest}" for name in fields for rest in of(getattr(spec, name))}

    assert paths(yaml.safe_load(SHIPPED.read_text())) == of(TopologySpec())


def test_missing_fields_take_their_defaults(load):
    assert load("pe: {clock_ghz: 2}") == TopologySpec(pe=PeSpec(clock_ghz=2.0))
    assert load("{}") == TopologySpec()


def test_a_component_is_named_by_its_implementation(load):
    spec = load("components:\n  pe_gemm: {impl: 'mine.models:Gemm'}\n")
    assert spec.components.pe_gemm == ComponentSpec("mine.models:Gemm")
    assert spec.components.pe_math == ComponentSpec("pe_math")


@pytest.mark.parametrize("text", ["1e3", "1000", "1000.0", "1.0e+3"])
def test_a_number_may_be_written_in_any_way(load, text):
    assert load(f"system: {{ns_per_mm: {text}}}").system.ns_per_mm == 1000.0


@pytest.mark.parametrize(
    ("text", "line", "field", "says"),
    [
        (
            "pe:\n  clock: 2\n",
            2,
            "pe.clock",
            "unknown field; valid: clock_ghz, cpu, gemm",
        ),
        (
            "cubes: {}\n",
            1,
            "cubes",
            "unknown field; valid: system, sip, cube, pe, components",
        ),
        (
            "cube:\n  router: {overhead_us: 2}\n",
            2,
            "cube.router.overhead_us",
            "overhead_ns",
        ),
        ("pe:\n  clock_mhz: 1\n", 2, "pe.clock_mhz", "unknown field; valid: clock_ghz"),
        (
            "pe:\n  tcm: {size_mib: 2}\n",
            2,
            "pe.tcm.size_mib",
            "unknown field; valid: size_kib",
        ),
        (
            "components:\n\n  pe_gem: {impl: x}\n",
            3,
            "components.pe_gem",
            "unknown field; valid: ",
        ),
        ("components: {pe_gemm: {}}", 1, "components.pe_gemm", "field impl is missing"),
        (
            "components: {pe_gemm: {impl: ''}}",
            1,
            "components.pe_gemm.impl",
            "must be a name",
        ),
        ("pe: {}\npe: {}\n", 2, "pe", "given twice; first on line 1"),
        ("pe:\n", 1, "pe", "must be a mapping"),
        ("- pe\n", 1, "the file", "must be a mapping with fields of: system, sip"),
        ("[a]: 1\n? [b]\n", 1, "a list or mapping", "unknown field"),
        (
            "pe:\n  gemm: [64, 64]\n",
            2,
            "pe.gemm",
            "must be a mapping with fields of: rows, cols",
        ),
        ("pe:\n  clock_ghz: {}\n", 2, "pe.clock_ghz", "must be one value"),
        (
            "pe:\n  clock_ghz: fast\n",
            2,
            "pe.clock_ghz",
            "must be a number .*, not 'fast'",
        ),
        ("pe:\n  clock_ghz: '1'\n", 2, "pe.clock_ghz", "must be a number .*, not '1'"),
        (
            "pe:\n  clock_ghz: true\n",
            2,
            "pe.clock_ghz",
            "must be a number .*, not True",
        ),
        (
            "pe:\n  clock_ghz: false\n",
            2,
            "pe.clock_ghz",
            "must be a number .*, not False",
        ),
        (
            "pe:\n  clock_ghz: null\n",
            2,
            "pe.clock_ghz",
            "must be a number .*, not None",
        ),
        (
            "pe:\n  clock_ghz: 0\n",
            2,
            "pe.clock_ghz",
            "must be a number from 0.001 to 1000, not 0.0",
        ),
        ("pe:\n  clock_ghz: -1\n", 2, "pe.clock_ghz", "not -1.0"),
        ("pe:\n  clock_ghz: .nan\n", 2, "pe.clock_ghz", "not nan"),
        ("pe:\n  clock_ghz: .inf\n", 2, "pe.clock_ghz", "not inf"),
        (f"pe:\n  clock_ghz: 1{'0' * 400}\n", 2, "pe.clock_ghz", "must be a number"),
        ("pe:\n  clock_ghz: !!int ''\n", 2, "pe.clock_ghz", "must be a number"),
        (
            "pe:\n  clock_ghz: !!python/name:os.system 1\n",
            2,
            "pe.clock_ghz",
            "must be a number",
        ),
        ("pe:\n  gemm: {rows: 1.5}\n", 2, "pe.gemm.rows", "must be a whole number"),
        ("pe:\n  gemm: {rows: 0}\n", 2, "pe.gemm.rows", "from 1"),
        (
            "pe:\n  gemm: {rows: 2024-13-45}\n",
            2,
            "pe.gemm.rows",
            "must be a whole number",
        ),
        (
            "system:\n  ns_per_mm: -0.1\n",
            2,
            "system.ns_per_mm",
            "must be a number from 0",
        ),
        (
            "system:\n  sips: {count: 17}\n",
            2,
            "system.sips.count",
            "from 1 to 16, not 17",
        ),
        (
            "system:\n  sips: {count: 17}\n",
            2,
            "system.sips.count",
            "that fits PhysAddr",
        ),
        (
            "sip:\n  cube_mesh: {w: 17}\n",
            2,
            "sip.cube_mesh.w",
            "that fits PhysAddr, from 1 to 16",
        ),
        (
            "sip:\n  cube_mesh: {h: 5}\n",
            2,
            "sip.cube_mesh",
            r"4 x 5 cubes; .* 16 \(PhysAddr\)",
        ),
        (
            "system:\n  sips: {topology: ring}\n",
            2,
            "system.sips.topology",
            "ring_1d, torus_2d",
        ),
        ("cube: {pe_layout: rows}\n", 1, "cube.pe_layout", "must be one of corners"),
        ("cube:\n  pes: 17\n", 2, "cube.pes", "from 1 to 16, not 17"),
        (
            "sip:\n  cube_mesh: {w: 4,\n    h: 5}\n",
            2,
            "sip.cube_mesh",
            "20 cubes|at most 16",
        ),
        ("sip:\n  io: {count: 5}\n", 2, "sip.io.count", "cube_mesh.w is 4"),
        (
            "cube:\n  hbm_zone:\n    row: 5\n",
            2,
            "cube.hbm_zone",
            "not all inside the mesh of 6 x 6",
        ),
        (
            "cube:\n  hbm_zone: {col: 0, cols: 6}\n",
            2,
            "cube.hbm_zone",
            "cuts the router mesh in two",
        ),
        (
            "cube:\n  hbm_zone: {row: 0, rows: 6}\n",
            2,
            "cube.hbm_zone",
            "cuts the router mesh in two",
        ),
        ("cube:\n  mesh: {rows: 3, cols: 4}\n", 1, "cube.hbm_zone", "mesh of 3 x 4"),
        (
            "cube:\n  mesh: {rows: 2, cols: 2}\n"
            "  hbm_zone: {row: 0, col: 0, rows: 0}\n",
            1,
            "cube.pes",
            "8 PEs need a router each; .* has 4",
        ),
        (
            "cube:\n  memory_map:\n    slices_per_cube: 4\n",
            3,
            "cube.memory_map.slices_per_cube",
            "4 HBM slices for 8 PEs",
        ),
        (
            "cube:\n  pes: 4\n",
            1,
            "cube.memory_map.slices_per_cube",
            "8 HBM slices for 4 PEs",
        ),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(load, text, line, field, says):
    with pytest.raises(
        TopologyError, match=rf"machine\.yaml:{line}: {field}: .*({says})"
    ):
        load(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"machine\.yaml:1: the file is empty"),
        ("# nothing\n", r"machine\.yaml:1: the file is empty"),
        ("pe: {\n", r"machine\.yaml:2: not valid YAML"),
        ("pe: {}\n---\npe: {}\n", r"machine\.yaml:\d: not valid YAML"),
        ("pe: *nothing\n", r"machine\.yaml:1: not valid YAML"),
        ("\x00", r"not valid YAML"),
        (b"\xff\xfe\xfa", "not a UTF-8 text file"),
        pytest.param("[" * 3000, "nested too deeply", id="deep"),
        ("pe: &a {gemm: *a}\n", r"machine\.yaml:1: "),
    ],
)
@pytest.mark.slow
def test_a_file_that_is_no_spec_is_a_topology_error(load, text, says):
    with pytest.raises(TopologyError, match=says):
        load(text)


def test_a_file_that_cannot_be_read_is_a_topology_error(tmp_path):
    with pytest.raises(TopologyError, match="cannot be read: Is a directory"):
        load_spec(tmp_path)
    with pytest.raises(
        TopologyError, match=r"none\.yaml: cannot be read: No such file"
    ):
        load_spec(tmp_path / "none.yaml")


@pytest.mark.slow
@given(text=st.text(st.sampled_from("pe:{}[]- \n!&*'\"%@|>,?#1.cpu"), max_size=40))
def test_no_text_raises_anything_else(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    file.write_text(text)
    try:
        answer = load_spec(file)
    except TopologyError as error:
        answer = error
    assert isinstance(answer, TopologySpec) or str(file) in str(answer)


@pytest.mark.parametrize(
    ("cube", "field"),
    [
        (replace(CubeSpec(), hbm=HbmSpec(channels=0)), "cube.hbm.channels"),
        (replace(CubeSpec(), hbm=None), "cube.hbm: must have the fields channels"),
        (replace(CubeSpec(), pes=2), "cube.memory_map.slices_per_cube"),
    ],
)
def test_a_spec_made_in_code_is_checked_as_a_file_is(tmp_path, cube, field):
    with pytest.raises(TopologyError, match=f"^{field}"):
        build_topology(TopologySpec(cube=cube), tmp_path)


def test_an_override_is_a_dotted_path_or_any_unique_end_of_one(tmp_path):
    file = tmp_path / "machine.yaml"
    file.write_text("pe: {clock_ghz: 3, gemm: {rows: 8}}\n")
    given = {
        "pe.clock_ghz": 2,
        "gemm.cols": 32,
        "lanes": 7,
        "system.pcie_bw_gbs": "1e2",
    }
    spec = load_spec(file, given)
    assert (spec.pe.clock_ghz, spec.pe.gemm.rows, spec.pe.gemm.cols) == (2.0, 8, 32)
    assert (spec.pe.math.lanes, spec.system.pcie_bw_gbs) == (7, 100.0)
    assert repr(load_spec(None, {"clock_ghz": 1})) == repr(TopologySpec())


def test_an_override_of_the_shipped_machine_is_built(layout_cache):
    given = {
        "sips.count": 1,
        "cube_mesh.w": 1,
        "cube_mesh.h": 1,
        "pe_gemm.impl": "transit",
    }
    graph = load_topology(overrides=given, cache_dir=layout_cache)
    assert {n.sip for n in graph.nodes.values()} == {-1, 0}
    assert {n.impl for n in graph.nodes.values() if n.type == "pe_gemm"} == {"transit"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"clok_ghz": 2},
            r"^--spec clok_ghz: unknown field; valid are: .*pe\.clock_ghz",
        ),
        ({"pe": 2}, r"^--spec pe: unknown field; valid are: "),
        (
            {"rows": 2},
            r"^--spec rows: could be any of cube.mesh.rows, .*pe.gemm.rows; give more",
        ),
        ({"clock_ghz": "fast"}, r"^--spec clock_ghz: must be a number .*, not 'fast'"),
        ({"clock_ghz": True}, r"^--spec clock_ghz: must be a number .*, not True"),
        ({"gemm.rows": 1.5}, r"^--spec gemm.rows: must be a whole number .*, not 1.5"),
        (
            {"gemm.rows": [1]},
            r"^--spec gemm.rows: must be a whole number .*, not \[1\]",
        ),
        ({"sips.topology": "ring"}, r"^--spec sips.topology: must be one of ring_1d"),
        (
            {"pes": 4},
            r"^--spec pes, cube.memory_map.slices_per_cube: 8 HBM slices for 4 PEs",
        ),
    ],
)
def test_a_wrong_override_is_named_as_it_was_given(given, says):
    with pytest.raises(TopologyError, match=says):
        load_spec(None, given)


def test_an_override_that_does_not_fit_a_file_names_both(load, tmp_path):
    load("cube:\n  memory_map:\n    slices_per_cube: 8\n")
    with pytest.raises(
        TopologyError, match=r"^--spec pes, .*machine\.yaml:3: cube\.memory_map"
    ):
        load_spec(tmp_path / "machine.yaml", {"pes": 4})
