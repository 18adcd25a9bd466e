"""A space is read whole, or refused with one line."""

import pytest
from sweeps import ONE_CUBE

from kernbench.errors import KernbenchError, UsageError
from kernbench.runtime_api import run_bench
from kernbench.sweep.columns import COLUMNS, columns_of
from kernbench.sweep.draw import Draw, drawn
from kernbench.sweep.space import read_space


def test_a_space_has_what_the_file_says(space_file):
    space = read_space(space_file())
    assert space.bench == "matmul"
    assert [axis.name for axis in space.axes][-2:] == ["cube_mesh.h", "seed"]
    assert space.grid_points == 2 * 3 * 2
    assert [str(o) for o in space.objectives] == ["least end_ns", "least energy_j"]


def test_files_are_beside_the_space(space_file, tmp_path, monkeypatch):
    (tmp_path / "twice.py").write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='twice', description='')\n"
        "def run(torch, n=64): pass\n"
    )
    (tmp_path / "machine.yaml").write_text("pe: {clock_ghz: 2}\n")
    path = space_file("bench: twice.py\ntopology: machine.yaml\nset: {n: [1, 2]}")
    monkeypatch.chdir("/")
    space = read_space(path)
    assert space.bench == str(tmp_path / "twice.py")
    assert space.options.topology == str(tmp_path / "machine.yaml")


def test_a_condition_may_speak_of_defaults(space_file):
    path = space_file("bench: matmul\nset: {m: [32, 512]}\nwhere: m <= n")
    space = read_space(path)
    assert space.holds(space.point([32, 0]))
    assert not space.holds(space.point([512, 0]))


def test_a_condition_sees_the_number_that_yaml_takes_for_a_text(space_file):
    given = "bench: matmul\nset: {m: ['32', 64]}\nspec: {pe.clock_ghz: [1e0, 2]}"
    space = read_space(space_file(f"{given}\nwhere: m != 32 and pe.clock_ghz != 1"))
    numbers = [axis.values for axis in space.axes]
    assert numbers == [(32, 64), (1.0, 2), (0,)]
    kept = [point.values() for point in drawn(space, Draw())]
    assert kept == [{"m": 64, "pe.clock_ghz": 2, "seed": 0}]


def test_a_condition_sees_our_name_of_a_dtype(space_file):
    given = "bench: matmul\nset: {dtype: [float32, f16]}\nwhere: dtype == 'f32'"
    space = read_space(space_file(given))
    (point,) = drawn(space, Draw())
    assert point.params == {"dtype": "f32"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("end_ns", {"end_ns": "min"}),
        ("[energy_j, ok]", {"energy_j": "min", "ok": "max"}),
        ("{ops: max, verified: min}", {"ops": "max", "verified": "min"}),
        ("ops_by_kind.gemm", {"ops_by_kind.gemm": "min"}),
    ],
)
def test_objectives_have_a_direction(space_file, given, expected):
    space = read_space(space_file(f"bench: matmul\nobjectives: {given}"))
    assert {o.column: o.direction for o in space.objectives} == expected


def test_the_columns_are_those_of_a_run():
    result = run_bench("matmul", params={"m": 32, "k": 32, "n": 32, "pes": 1})
    columns = columns_of(result)
    assert set(COLUMNS) < columns.keys()
    summary = result.summary()
    assert {name: columns[name] for name in COLUMNS} == {
        name: summary[name] for name in COLUMNS
    }
    assert columns["ops_by_kind.gemm"] == summary["ops_by_kind"]["gemm"] == 1
    numbers = {name for name, value in summary.items() if type(value) in (int, float)}
    assert numbers <= set(COLUMNS)


WRONG = {
    "": "must be a mapping",
    "- matmul": "must be a mapping",
    "set: {m: 1}": "bench is missing",
    "bench: nothing": "unknown bench 'nothing'",
    "bench: nothing.py": "is not a file",
    "bench: [matmul]": "bench: must be a text",
    "bench: matmul\nsets: {m: 1}": "unknown field 'sets'",
    "bench: matmul\nset: {q: 1}": "has no parameter 'q'",
    "bench: matmul\nset: {m: [64, big]}": "m=big: must be int",
    "bench: matmul\nset: {m: {from: 0.5, to: 2.0}}": "m=0.5: must be int",
    "bench: matmul\nset: {m: [64, true]}": "m=True: must be int",
    "bench: matmul\nspec: {clock_ghz: [1, 2], pe.clock_ghz: 1}": (
        "spec: pe.clock_ghz: spec: clock_ghz is the same field, pe.clock_ghz"
    ),
    "bench: matmul\nset: [m]": "set: must be a mapping",
    "bench: matmul\nspec: {pe.clock_mhz: [1]}": "unknown field",
    "bench: matmul\nspec: {count: [1]}": "could be any of",
    "bench: matmul\ntopology: nothing.yaml": "nothing.yaml: cannot be read",
    "bench: matmul\nplugins: nothing.py": "cannot be read",
    "bench: matmul\nseed: [a]": "seed: must be a whole number",
    "bench: matmul\nseed: -1": "seed -1: must be from 0",
    "bench: matmul\nset: {m: []}": "set: m: no values, so the space is empty",
    "bench: matmul\nset: {m: 1, m: 2}": ":2: 'm' is given twice",
    "bench: matmul\nbench: softmax": ":2: 'bench' is given twice",
    "bench: matmul\nwhere: q < 1": "no value 'q'",
    "bench: matmul\nwhere: m.__class__ == 1": "no value 'm.__class__'",
    "bench: matmul\nwhere: 1": "where: must be a text",
    "bench: matmul\nobjectives: speed": "no column 'speed'",
    "bench: matmul\nobjectives: {end_ns: most}": "must be min or max",
    "bench: matmul\nobjectives: []": "must be a column",
    "bench: matmul\nverify: maybe": "verify: must be true or false",
    "bench: matmul\nmax_ns: soon": "max_ns: must be a number",
    "bench: matmul\nmax_ns: .inf": "max_ns: inf is no time; leave it out for no limit",
    "bench: matmul\nmax_ns: .nan": "max_ns: nan is no time; leave it out for no limit",
    "bench: matmul\nmax_ops: .inf": "max_ops: must be a whole number, not inf",
    "bench: matmul\nmax_ops: 1.5": "max_ops: must be a whole number",
    "bench: matmul\nmax_ops: 0": "must be 1 or more",
    "bench: [": "not valid YAML",
    "bench: !!python/object/apply:os.system ['touch ran']": "not valid YAML",
    "bench: " + "[" * 3000: "nested too deeply",
}


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.slow
def test_a_wrong_space_is_one_line(space_file, tmp_path, text):
    with pytest.raises(KernbenchError) as caught:
        read_space(space_file(text))
    assert WRONG[text] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]


def test_a_space_that_is_not_there_or_no_text_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_space(tmp_path / "space.yaml")
    (tmp_path / "space.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UsageError, match="not a UTF-8 text file"):
        read_space(tmp_path / "space.yaml")


def test_one_name_for_a_parameter_and_a_field_is_refused(space_file):
    path = space_file(
        "bench: benches.py\nset: {clock_ghz: 1}\nspec: {clock_ghz: [1, 2]}"
    )
    path.with_name("benches.py").write_text(
        "from kernbench.benches import bench\n"
        "@bench(name='b', description='')\n"
        "def run(torch, clock_ghz=1): pass\n"
    )
    with pytest.raises(UsageError, match="set: clock_ghz has that name too"):
        read_space(path)


def test_the_machine_of_the_other_tests_is_one_cube(space_file):
    space = read_space(space_file(f"bench: matmul\nspec: {{{ONE_CUBE}}}"))
    assert space.grid_points == 1
