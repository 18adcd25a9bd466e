"""Mutants have the mistake that they name, and what is known of them is found."""

import ast
import gc
from itertools import cycle, product

import kernel_mutants as mutants
import late_bytes
import ordered_programs
import plain_frames  # of tests/oracles, where late_bytes finds it
import pytest
import score
import trials
from held import DELAYS_NS
from pace import some_in_ci

from kernbench.runtime_api import run_bench
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.trace import Trace

ANY = mutants.right(mutants.PROGRAMS[0])
"""Whose lines findings are looked for, where there are to be no findings."""

RACE = '''\
"""A sum of what may not have come."""

from kernbench.runtime_api.registry import bench


def kernel(x_ptr, y_ptr, n, tl):
    x = tl.load(x_ptr, (n,), "f32", wait={wait})
    tl.store(y_ptr, x + x)


@bench(name="sum", description="a sum")
def run(torch, n: int = 16):
    x = torch.tensor(torch.rng.standard_normal(n), "f32", name="x")
    y = torch.empty((n,), "f32", name="y")
    torch.launch("sum", kernel, x, y, n)
'''


@pytest.fixture(autouse=True)
def _no_growing_heap():
    """What tests before have made is looked at by no collection of a run."""
    gc.freeze()


def names_of(chosen):
    return [mutant.name for mutant in chosen]


def recorded(text, folder, **options):
    file = folder / "program.py"
    file.write_text(text)
    path = folder / "trace.msgpack"
    run_bench(str(file), trace=path, **options)
    return path


@pytest.mark.slow
def test_each_mutant_differs_from_its_program_in_few_lines():
    for mutant in mutants.all_mutants():
        ast.parse(mutant.text)
        before = mutant.program.file.read_text().splitlines()
        after = mutant.text.splitlines()
        changed = set()
        for number, line in enumerate(before, 1):
            if after[number - 1] != line:
                changed.add(number)
        tail = mutants.tail_of(mutant.text).splitlines()
        assert len(after) == len(before) + len(tail), mutant.name
        assert changed or mutant.spec, mutant.name
        if mutant.kind == "scope early":
            assert mutant.lines[0] in changed, mutant.name
        else:
            assert changed <= set(mutant.lines), mutant.name


def test_mutants_have_names_of_their_own():
    names = names_of(mutants.all_mutants())
    assert len(set(names)) == len(names)


def test_every_kind_of_mistake_is_made():
    made = {mutant.kind for mutant in mutants.all_mutants()}
    assert made == {*mutants.RULES, "credit early"}


def test_no_kind_of_mistake_is_lost_from_a_program():
    """Rules look at the source: of one that is rewritten they may find nothing more.

    Where that is as it should be, the score made again forgets what there was.
    """
    made = set(map(mutants.kind_in_program, names_of(mutants.all_mutants())))
    known = set(map(mutants.kind_in_program, score.Witnesses().names))
    assert known <= made


@pytest.mark.parametrize("program", mutants.PROGRAMS, ids=lambda p: p.name)
def test_lines_that_a_program_leaves_out_are_in_its_file(program):
    text = program.file.read_text()
    assert [part for part in program.left_out if part not in text] == []


def test_blocks_that_are_sliced_are_one_off_in_every_call():
    (program,) = (p for p in mutants.PROGRAMS if p.name == "sliced")
    lines = program.file.read_text().splitlines()
    calls = [n for n, line in enumerate(lines, 1) if "_ptr[" in line]
    made = [m for m in mutants.mutants_of(program) if m.kind == "tile off"]
    assert calls == sorted(mutant.lines[0] for mutant in made)


@pytest.mark.parametrize("which", range(3))
def test_a_block_one_off_is_wrong(which, tmp_path):
    (program,) = (p for p in mutants.PROGRAMS if p.name == "sliced")
    made = [m for m in mutants.mutants_of(program) if m.kind == "tile off"]
    outcome = trials.Written(made[which], tmp_path).run("shipped")
    assert outcome.end == "wrong"


def test_a_sum_of_what_has_not_come_is_another_if_bytes_move_late(tmp_path):
    execution = late_bytes.Execution(
        late_bytes.read(recorded(RACE.format(wait=False), tmp_path))
    )
    different = 0
    for seed in range(10):
        different += execution.late(seed) != execution.in_order()
    assert different


def test_what_a_pe_stores_is_there_for_its_own_loads(tmp_path):
    text = RACE.format(wait=True).replace(
        "tl.store(y_ptr, x + x)",
        "tl.store(y_ptr, x + x, wait=False)\n"
        '    y = tl.load(y_ptr, (n,), "f32")\n'
        "    tl.store(x_ptr, y + y)",
    )
    execution = late_bytes.Execution(late_bytes.read(recorded(text, tmp_path)))
    for seed in range(10):
        assert execution.late(seed) == execution.in_order()


def test_a_sum_of_what_was_awaited_is_the_same(tmp_path):
    execution = late_bytes.Execution(
        late_bytes.read(recorded(RACE.format(wait=True), tmp_path))
    )
    for seed in range(10):
        assert execution.late(seed) == execution.in_order()


@pytest.mark.parametrize("name", ["halo", "moe_route", "mlp_tp", "matmul_ref_slices"])
@pytest.mark.slow
def test_in_order_what_is_left_is_what_phase_2_leaves(name, tmp_path):
    (program,) = [p for p in mutants.PROGRAMS if p.name == name]
    written = trials.Written(mutants.right(program), tmp_path)
    outcome = written.run("shipped")
    assert outcome.end == "done"
    executor = DataExecutor(Trace.open(outcome.trace).executable)
    executor.run()
    for (_, addr), held in outcome.execution().in_order().items():
        assert executor.store.view("hbm", addr, (len(held),), "u8").tobytes() == held


def test_every_dma_op_is_held_for_one_of_the_delays(tmp_path):
    program = ordered_programs.program(0)
    spec = {"components.pe_dma.impl": "held:Held0"}
    recording = plain_frames.read(recorded(program, tmp_path, spec=spec))
    held = set()
    for wait in recording.waits:
        if plain_frames.REASONS[wait["reason"]] == "delayed":
            held.add(wait["t1"] - wait["t0"])
    assert held == set(DELAYS_NS) - {0.0}


ON_MACHINES = [
    (program.name, machine)
    for program, machine in product(mutants.PROGRAMS, trials.MACHINES)
]


@pytest.mark.slow
@pytest.mark.parametrize("case", some_in_ci(ON_MACHINES, 7), ids="-".join)
def test_no_right_program_is_reported(case):
    name, machine = case
    (program,) = [program for program in mutants.PROGRAMS if program.name == name]
    row = score.judged(mutants.right(program), None, [machine])
    assert not row.fails
    assert not row.is_wrong
    assert not row.is_reported_once


@pytest.mark.soak
@pytest.mark.parametrize("program", mutants.PROGRAMS, ids=lambda p: p.name)
def test_no_right_program_depends_on_timing(program, tmp_path):
    written = trials.Written(mutants.right(program), tmp_path)
    assert trials.truth_of(written) == score.NOT_TIMED


def ordered(seed, folder):
    """The trace of a program that is ordered by the way it is made."""
    file = folder / "program.py"
    file.write_text(ordered_programs.program(seed))
    machine = [*trials.MACHINES][seed % len(trials.MACHINES)]
    spec = mutants.PROGRAMS[0].machine | trials.MACHINES[machine]
    path = folder / "trace.msgpack"
    run_bench(str(file), trace=path, spec=spec)
    return path


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_no_ordered_program_is_reported(seed, tmp_path):
    path = ordered(seed, tmp_path)
    assert score.asked("hazards", path, ANY).findings == 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5, 500))
def test_no_more_ordered_programs_are_reported(seed, tmp_path):
    path = ordered(seed, tmp_path)
    assert score.asked("hazards", path, ANY).findings == 0
    execution = late_bytes.Execution(late_bytes.read(path))
    assert execution.late(seed) == execution.in_order()


SEED = 25
"""Chooses the tenth of the mutants that CI looks at."""

LEAST_IN_TOP = 0.8
"""The share of what is wrong whatever the timing whose line diagnose puts in front."""


def all_judged(chosen):
    """What is said of some mutants on all machines, a row each.

    Where nothing is known of a mutant it is found out, which takes some seconds.
    """
    witnesses = score.Witnesses()
    return [score.judged(mutant, witnesses) for mutant in chosen]


def judged_in_turn(chosen):
    """As ``all_judged``, but each mutant on one machine, the machines in turn."""
    witnesses = score.Witnesses()
    turns = zip(chosen, cycle(trials.MACHINES), strict=False)
    return [score.judged(mutant, witnesses, [machine]) for mutant, machine in turns]


def check_reported(rows):
    """What depends on timing is reported, on all machines that it ran on."""
    missed = [
        row.mutant.name for row in rows if row.truth.is_timed and not row.is_reported
    ]
    assert missed == []


def check_in_front(rows):
    """Of what is bad diagnose puts most lines in front."""
    bad = score.bad_ones(rows)
    found = sum(row.is_in_top("diagnosis") for row in bad)
    assert bad
    assert found >= LEAST_IN_TOP * len(bad)


@pytest.mark.slow
def test_a_tenth_of_the_mutants_is_reported_and_its_lines_put_in_front():
    rows = judged_in_turn(score.chosen("", 0.1, SEED))
    check_reported(rows)
    check_in_front(rows)


@pytest.mark.soak
@pytest.mark.parametrize(
    "mutant", mutants.all_mutants(), ids=lambda mutant: mutant.name
)
def test_all_that_depends_on_timing_is_reported(mutant):
    check_reported(all_judged([mutant]))


@pytest.mark.soak
def test_diagnose_puts_the_lines_of_what_is_bad_in_front():
    check_in_front(all_judged(mutants.all_mutants()))
