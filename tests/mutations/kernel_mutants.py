"""Wrong programs made from right ones, by rewriting their source.

A mutant has one mistake of one kind. It is the text of a file, of as many lines as the
right one but for what is appended, so that its true line is known by its number. Knows
nothing of how a mistake is found.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import kernbench

PACKAGE = Path(kernbench.__file__).parent
HERE = Path(__file__).parent

TAIL = """

def _past(ptr, shape, dtype, tl):
    # Wrong on the first PE of the first cube: one tile further.
    from kernbench.common.dtypes import nbytes_of

    if tl.program_id(0) + tl.program_id(1):
        return ptr
    return ptr + nbytes_of(tuple(shape), dtype)


def _past_store(ptr, handle, tl):
    return _past(ptr, handle.shape, handle.dtype, tl), handle
"""
"""What mutants call, behind the last line of the program."""

TAIL_OF_SLICES = """

def _behind(ptr, tl):
    # Wrong there likewise: the block of a tensor behind that of a slice, or of this PE.
    from kernbench.common.pointers import TensorPtr, sliced

    if tl.program_id(0) + tl.program_id(1):
        return ptr
    if isinstance(ptr, TensorPtr):
        ptr = ptr[tuple(slice(own.start, own.stop) for own in tl.own(ptr))]
    index = []
    moved = False
    for along, whole, kept in zip(ptr.ranges, ptr.layout.shape, ptr.kept):
        low, extent, step = along
        span = (extent - 1) * step + 1
        if not moved and low + 2 * span <= whole:
            low += span
            moved = True
        index.append(slice(low, low + span, step) if kept else low)
    return sliced(ptr.layout, tuple(index))


def _behind_store(ptr, handle, tl):
    return _behind(ptr, tl), handle
"""
"""What those call besides whose mistake is in a slice, or in a tensor alone."""

CCL_YAML = """\
defaults:
  algorithm: mutant
  slots: 2
  slot_bytes: 32
algorithms:
  mutant:
    module: {module}
    n_elem: 8
"""


# -- right programs --------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A right program: a bench, its parameters, and the file that is rewritten.

    ``file`` is that of the bench, or where ``algorithm`` is named a module of
    collectives. ``machine`` are fields of the topology. Lines that have a text of
    ``left_out`` do not run with these parameters.
    """

    name: str
    bench: str
    file: Path
    params: dict[str, Any]
    machine: dict[str, Any]
    algorithm: str = ""
    left_out: tuple[str, ...] = ()


def _machine(sips: int = 1, width: int = 2) -> dict[str, Any]:
    """So many SIPs of ``width`` cubes of four PEs."""
    return {
        "system.sips.count": sips,
        "sip.cube_mesh.w": width,
        "sip.cube_mesh.h": 1,
        "cube.pes": 4,
        "cube.memory_map.slices_per_cube": 4,
    }


def _shipped(name: str, left_out: tuple[str, ...] = (), **params: Any) -> Program:
    """A shipped bench, named after it and the variant that it runs."""
    variant = params.get("variant")
    shown = name
    if variant:
        shown = f"{name}_{variant}"
    file = PACKAGE / "benches" / f"{name}.py"
    return Program(shown, name, file, params, _machine(), left_out=left_out)


def _idiom(name: str) -> Program:
    """A right program of ours, of what no shipped bench does."""
    file = HERE / "benches" / f"{name}.py"
    return Program(name, str(file), file, {}, _machine())


def _ranks(name: str, **params: Any) -> Program:
    """A shipped bench of two ranks."""
    file = PACKAGE / "benches" / f"{name}.py"
    return Program(name, name, file, params, _machine(sips=2))


def _collective(file: str, algorithm: str, sips: int = 2, width: int = 2) -> Program:
    """All-reduce by an algorithm, of which ``file`` is rewritten."""
    path = PACKAGE / "ccl" / f"{file}.py"
    return Program(
        f"{algorithm}:{path.stem}",
        "ccl_allreduce",
        path,
        {"n_elem": 64},
        _machine(sips, width),
        algorithm,
    )


SLICES = ("total",)
"""What the lines of matmul_ref have that only its variant "slices" runs."""

PROGRAMS = (
    _shipped("matmul", m=16, k=16, n=16, tile=8),
    _shipped(
        "matmul_ref", (*SLICES, "tl.dot("), variant="load", m=16, k=16, n=16
    ),
    _shipped(
        "matmul_ref", (*SLICES, "tl.composite"), variant="dot", m=16, k=16, n=16
    ),
    _shipped(
        "matmul_ref",
        ("take(", "tl.load(a)"),
        variant="slices",
        m=72,
        k=72,
        n=136,
        pes=2,
    ),
    _shipped("softmax", ("tl.softmax",), m=32, n=16, block=2),
    _shipped("layernorm", m=32, n=16, block=2),
    _shipped("flash_attention", seq=16, d=8, block=4),
    _shipped("moe_route", tokens=32, d=8, experts=4),
    _shipped("pointer_chase", entries=64, hops=4),
    _ranks("mlp_tp", tokens=4, d=8, hidden=16),
    _collective("kernels", "intercube_allreduce"),
    _collective("algorithms/intercube_allreduce", "intercube_allreduce", sips=3),
    _collective("algorithms/ring_chunked_allreduce", "ring_chunked_allreduce"),
    _idiom("mailbox"),
    _idiom("halo"),
    _idiom("prefetch"),
    _idiom("relay"),
    _idiom("sliced"),
)  # fmt: skip


# -- mutants ---------------------------------------------------------------------------


class Edit(NamedTuple):
    """Bytes [start, stop) of a source are replaced by ``text``."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True)
class Mutation:
    """One mistake: what is rewritten, and the lines that a good finding names.

    Those are the line of the mistake, and that of the call which it leaves unordered.
    """

    edits: tuple[Edit, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Mutant:
    """A wrong program: ``text`` is that of its one file that differs."""

    program: Program
    kind: str
    lines: tuple[int, ...]
    number: int
    text: str
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is asked for by: program, kind, line, and a number if two share."""
        kind = self.kind.replace(" ", "-")
        return f"{self.program.name}/{kind}/{self.lines[0]}.{self.number}"

    @property
    def sha(self) -> str:
        """The SHA-256 of all that it is, in hex."""
        program = self.program
        whole = (self.text, program.name, program.params, program.machine, self.spec)
        return hashlib.sha256(repr(whole).encode()).hexdigest()

    @property
    def file_name(self) -> str:
        """The name of the file that has the mistake."""
        return written_name(self.program)


def kind_in_program(name: str) -> str:
    """Program and kind of the mutant of a name: what is before its line."""
    return name.rpartition("/")[0]


def written_name(program: Program) -> str:
    """The name of the file that the rewritten source of a program is written to."""
    if program.algorithm:
        return f"mutant_{program.file.stem}.py"
    return f"mutant_{Path(program.bench).stem}.py"


def right(program: Program) -> Mutant:
    """The right program as a mutant without a mistake."""
    text = program.file.read_text() + TAIL
    return Mutant(program, "right", (1,), 0, text)


def mutants_of(program: Program) -> Iterator[Mutant]:
    """All mutants of a program, by kind and line."""
    source = Source(program.file.read_text())
    for kind, rule in RULES.items():
        seen: dict[int, int] = {}
        for mutation in rule(source):
            line = mutation.lines[0]
            text = source.lines[line - 1]
            if any(part in text for part in program.left_out):
                continue
            number = seen.get(line, 0)
            seen[line] = number + 1
            changed = source.edited(mutation.edits)
            changed += tail_of(changed)
            yield Mutant(program, kind, mutation.lines, number, changed)
    yield from _early_credits(program, source)


def tail_of(changed: str) -> str:
    """What stands behind the last line of a program that was rewritten."""
    if "_behind" in changed:
        return TAIL + TAIL_OF_SLICES
    return TAIL


def all_mutants(programs: Iterable[Program] = PROGRAMS) -> list[Mutant]:
    """All mutants of all programs."""
    return [mutant for program in programs for mutant in mutants_of(program)]


class Files(NamedTuple):
    """A written mutant, as ``run_bench`` takes it."""

    bench: str
    plugins: tuple[Path, ...]
    ccl: Path | None


def write(mutant: Mutant, folder: Path) -> Files:
    """Write a mutant into a folder: one file, or those of a collective."""
    program = mutant.program
    path = folder / mutant.file_name
    path.write_text(mutant.text)
    if not program.algorithm:
        return Files(str(path), (), None)
    plugins = [path]
    module = path.stem
    if program.file.stem == "kernels":
        algorithm = PACKAGE / "ccl" / "algorithms" / f"{program.algorithm}.py"
        text = algorithm.read_text()
        user = folder / "mutant_algorithm.py"
        user.write_text(text.replace("kernbench.ccl.kernels", path.stem))
        plugins.append(user)
        module = user.stem
    ccl = folder / "ccl.yaml"
    ccl.write_text(CCL_YAML.format(module=module))
    return Files(program.bench, tuple(plugins), ccl)


# -- source ----------------------------------------------------------------------------


class Source:
    """A text, its tree, and where its nodes lie in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.lines = text.splitlines()
        self._starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node

    def line_start(self, line: int) -> int:
        """The first byte of a line, counted from 1."""
        return self._starts[line - 1]

    def start(self, node: Any) -> int:
        """The first byte of a node."""
        return self._starts[node.lineno - 1] + node.col_offset

    def stop(self, node: Any) -> int:
        """The byte behind a node."""
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        return self.text.encode()[self.start(node) : self.stop(node)].decode()

    def replaced(self, node: ast.AST, text: str) -> Edit:
        """Another text for a node, on as many lines."""
        text += self.missing_lines(node, text)
        return Edit(self.start(node), self.stop(node), text)

    def missing_lines(self, node: Any, text: str) -> str:
        """Empty lines, so that a text has as many as the node that it replaces."""
        return "\n" * (node.end_lineno - node.lineno - text.count("\n"))

    def before(self, node: ast.AST, text: str) -> Edit:
        """Text in front of a node."""
        return Edit(self.start(node), self.start(node), text)

    def after(self, node: ast.AST, text: str) -> Edit:
        """Text behind a node."""
        return Edit(self.stop(node), self.stop(node), text)

    def edited(self, edits: Iterable[Edit]) -> str:
        """The text with edits, none of which overlaps another."""
        raw = self.text.encode()
        for edit in sorted(edits, reverse=True):
            raw = raw[: edit.start] + edit.text.encode() + raw[edit.stop :]
        return raw.decode()

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that a node is a part of."""
        return self._parents.get(node)

    def within(self, node: ast.AST, kind: type) -> Any:
        """The nearest node of a kind around a node; None if there is none."""
        found = self.parent(node)
        while found is not None and not isinstance(found, kind):
            found = self.parent(found)
        return found

    def is_in_kernel(self, node: ast.AST) -> bool:
        """Whether a node is in a function that has ``tl``."""
        function = self.within(node, ast.FunctionDef)
        if function is None:
            return False
        return "tl" in {argument.arg for argument in function.args.args}

    def calls(self, *names: str) -> Iterator[tuple[ast.Call, str]]:
        """The calls of ``tl`` by these names, and the text of that ``tl``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                whose = self.of(node.func.value)
                if node.func.attr in names and whose in ("tl", "self.tl", "peers.tl"):
                    yield node, whose

    def blocks(self) -> Iterator[list[ast.stmt]]:
        """All lists of statements."""
        for node in ast.walk(self.tree):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    yield block

    def following(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements behind one in its block."""
        for block in self.blocks():
            if statement in block:
                return block[block.index(statement) + 1 :]
        return []


def keyword(call: ast.Call, name: str) -> Any:
    """The value of a keyword of a call; None if it has none."""
    for given in call.keywords:
        if given.arg == name:
            return given.value
    return None


def names_in(node: ast.AST) -> set[str]:
    """The names that a node mentions."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_call_of(node: ast.AST | None, *names: str) -> bool:
    """Whether a node is a call of a method by one of these names."""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr in names


SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign)


# -- kinds of mistakes -----------------------------------------------------------------


def wait_dropped(source: Source) -> Iterator[Mutation]:
    """``tl.wait`` of a handle is left out, or a composite is not waited for."""
    for call, _ in source.calls("wait"):
        awaited = call.args[0]
        lines = (call.lineno, *made_at(source, call, awaited))
        if isinstance(awaited, ast.Name):
            yield Mutation((source.replaced(call, "None"),), lines)
        else:
            yield Mutation((source.replaced(call, source.of(awaited)),), lines)
    for call, _ in source.calls("composite", "load", "store", "send"):
        value = keyword(call, "wait")
        if value is not None and source.of(value) == "True":
            yield Mutation((source.replaced(value, "False"),), (call.lineno,))


def made_at(source: Source, call: ast.Call, awaited: ast.AST) -> tuple[int, ...]:
    """The lines at which a handle that is awaited may have been made."""
    function = source.within(call, ast.FunctionDef)
    found = []
    names = names_in(awaited)
    for _ in range(2):  # a name may stand for another: x = coming
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                targets = set().union(*map(names_in, node.targets))
                if targets & names:
                    found.append(node.lineno)
                    if isinstance(node.value, ast.Name):
                        names = names | {node.value.id}
    return tuple(sorted(set(found)))


def wait_late(source: Source) -> Iterator[Mutation]:
    """``tl.wait`` comes behind the first use."""
    for call, whose in source.calls("wait"):
        statement = source.parent(call)
        awaited = call.args[0]
        if not isinstance(statement, ast.Expr) or not isinstance(awaited, ast.Name):
            continue
        use = first_use(source.following(statement), awaited.id)
        if use is not None:
            wait = f"; {whose}.wait({awaited.id})"
            edits = (source.replaced(statement, "pass"), source.after(use, wait))
            made = made_at(source, call, awaited)
            yield Mutation(edits, (*lines_of(use), *made, call.lineno))
    for call, whose in source.calls("load"):
        statement = source.parent(call)
        if not isinstance(statement, ast.Assign) or keyword(call, "wait") is not None:
            continue
        name = source.of(statement.targets[0])
        use = first_use(source.following(statement), name)
        if use is not None:
            wait = source.after(use, f"; {whose}.wait({name})")
            edits = (*not_waited(source, call), wait)
            yield Mutation(edits, (*lines_of(use), call.lineno))


def lines_of(statement: ast.stmt) -> range:
    """The lines of a statement, the first one first."""
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def first_use(statements: Iterable[ast.stmt], name: str) -> ast.stmt | None:
    """The first statement that mentions a name, if it is a simple one."""
    for statement in statements:
        if name in names_in(statement):
            return statement if isinstance(statement, SIMPLE) else None
    return None


def not_waited(source: Source, call: ast.Call) -> tuple[Edit, ...]:
    """``wait=False`` for a call that has no ``wait``."""
    last = [*call.args, *(given.value for given in call.keywords)][-1]
    return (source.after(last, ", wait=False"),)


def load_not_waited(source: Source) -> Iterator[Mutation]:
    """A load, or a recv into fresh scratch, goes on at once."""
    for call, _ in source.calls("load"):
        if keyword(call, "wait") is None:
            yield Mutation(not_waited(source, call), (call.lineno,))
    for call, _ in source.calls("recv"):
        if keyword(call, "out") is None:
            edit = source.replaced(call.func, f"{source.of(call.func)}_async")
            yield Mutation((edit,), (call.lineno,))


def store_not_waited(source: Source) -> Iterator[Mutation]:
    """A store or a send goes on at once."""
    for call, _ in source.calls("store", "send"):
        if keyword(call, "wait") is None:
            yield Mutation(not_waited(source, call), (call.lineno,))


def message_early(source: Source) -> Iterator[Mutation]:
    """A message, or a credit, goes before what it tells of has been done."""
    for block in source.blocks():
        for before, statement in pairwise(block):
            done = getattr(before, "value", None)
            sent = getattr(statement, "value", None)
            if not is_call_of(sent, "send") or not is_call_of(done, "load", "store"):
                continue
            made = set()
            if isinstance(before, ast.Assign):
                made = names_in(before.targets[0])
            if made & names_in(sent):
                continue
            edits = (
                source.before(before, f"{source.of(statement)}; "),
                source.replaced(statement, "pass"),
            )
            yield Mutation(edits, (before.lineno, statement.lineno))


def slot_too_few(source: Source) -> Iterator[Mutation]:
    """Buffers in turn are one fewer than the turns count on."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
            continue
        count = source.of(node.right)
        is_ring = count == "2" or count.endswith("SLOTS")
        if is_ring and source.is_in_kernel(node):
            edit = source.replaced(node.right, f"({count} - 1)")
            yield Mutation((edit,), (node.lineno, *used_at(source, node)))
    for node in ast.walk(source.tree):
        # two buffers in turn, by names: the one that is free is the one in use
        is_turn = isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp)
        if is_turn and source.of(node.targets[0]) == "unused":
            edit = source.replaced(node.value, "came")
            yield Mutation((edit,), (node.lineno,))


def tile_off(source: Source) -> Iterator[Mutation]:
    """The first PE addresses the tile behind its own."""
    for call, whose in source.calls("load", "ref"):
        lines = (call.lineno, *used_at(source, call))
        ptr = source.of(call.args[0])
        if len(call.args) == 1:
            edit = source.replaced(call.args[0], f"_behind({ptr}, {whose})")
            yield Mutation((edit,), lines)
            continue
        shape = source.of(call.args[1])
        dtype = '"f16"'
        if len(call.args) > 2:
            dtype = source.of(call.args[2])
        past = f"_past({ptr}, {shape}, {dtype}, {whose})"
        yield Mutation((source.replaced(call.args[0], past),), lines)
    for call, whose in source.calls("store"):
        first, second, *_ = call.args
        past = "*_past_store("
        if isinstance(first, ast.Subscript):
            past = "*_behind_store("
        edits = (
            source.before(first, past),
            source.after(second, f", {whose})"),
        )
        yield Mutation(edits, (call.lineno,))


def used_at(source: Source, node: ast.AST) -> tuple[int, ...]:
    """The lines of the calls that may use what a statement computes.

    Those of its function that mention its name; of one that only gives it back, all.
    """
    statement = source.within(node, ast.Assign)
    function = source.within(node, ast.FunctionDef)
    if statement is None:
        return ()
    # what is only referred to is used by a composite
    calls = [*source.calls("load", "store", "composite")]
    if any(source.within(call, ast.Assign) is statement for call, _ in calls):
        return ()  # it is the use itself
    name = source.of(statement.targets[0])
    everywhere = []
    mine = []
    for call, _ in calls:
        everywhere.append(call.lineno)
        if source.within(call, ast.FunctionDef) is function and name in names_in(call):
            mine.append(call.lineno)
    return tuple(mine or everywhere)


def scope_early(source: Source) -> Iterator[Mutation]:
    """The last statement of a scope comes behind it."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.With) or len(node.body) < 2:
            continue
        if not is_call_of(node.items[0].context_expr, "scope"):
            continue
        last = node.body[-1]
        edits = []
        for line in range(last.lineno, last.end_lineno + 1):
            start = source.line_start(line)
            edits.append(Edit(start, start + 4, ""))
        yield Mutation(tuple(edits), (last.lineno,))


def not_reset(source: Source) -> Iterator[Mutation]:
    """An accumulator goes on from one tile to the next, or is shared by all."""
    for call, _ in source.calls("zeros", "full"):
        around = source.parent(call)
        if isinstance(around, ast.ListComp):
            count = source.of(around.generators[0].iter)
            shared = f"[{source.of(call)}] * len({count})"
            yield Mutation((source.replaced(around, shared),), (call.lineno,))
        elif isinstance(around, ast.Assign) and source.within(call, ast.For):
            name = source.of(around.targets[0])
            kept = f'locals()["{name}"] if "{name}" in locals() else {source.of(call)}'
            yield Mutation((source.replaced(call, kept),), (call.lineno,))
    for call, _ in source.calls("mul"):
        is_zero = len(call.args) > 1 and source.of(call.args[1]) == "0.0"
        if is_zero and isinstance(source.parent(call), ast.Expr):
            yield Mutation((source.replaced(call, "None"),), (call.lineno,))


def no_rescale(source: Source) -> Iterator[Mutation]:
    """What was summed so far is not scaled to the new maximum: never, or once not."""
    for call, whose in source.calls("mul", "fma"):
        out = keyword(call, "out")
        loop = source.within(call, ast.For)
        if out is None or loop is None or source.of(call.args[1]) == "0.0":
            continue
        if source.of(out) != source.of(call.args[0]):
            continue
        kept = "None"
        if call.func.attr == "fma":
            terms = f"{source.of(call.args[0])}, {source.of(call.args[2])}"
            kept = f"{whose}.add({terms}, out={source.of(out)})"
        yield Mutation((source.replaced(call, kept),), (call.lineno,))
        is_last = f"{source.of(loop.target)} == [*{source.of(loop.iter)}][-1]"
        once = f"{kept} if {is_last} else {source.of(call)}"
        yield Mutation((source.replaced(call, once),), (call.lineno,))


def send_skipped(source: Source) -> Iterator[Mutation]:
    """The first PE of the first cube sends no message where all others do."""
    for call, whose in source.calls("send"):
        yield _skipped(source, call, whose)
    for node in ast.walk(source.tree):
        if is_call_of(node, "give") and source.of(node.func.value) == "peers":
            yield _skipped(source, node, "peers.tl")


def _skipped(source: Source, call: ast.Call, whose: str) -> Mutation:
    is_first = f"{whose}.program_id(0) + {whose}.program_id(1) == 0"
    return Mutation((source.before(call, f"{is_first} or "),), (call.lineno,))


def barrier_dropped(source: Source) -> Iterator[Mutation]:
    """Messages that say nothing but that their sender has come so far: none is sent."""
    opposite = {"'E'": "'W'", "'W'": "'E'"}
    pure = []
    for call, _ in source.calls("recv"):
        if isinstance(source.parent(call), ast.Expr):
            pure.append(call)
    for recv in pure:
        way = ast.unparse(recv.args[0])
        if way not in opposite:
            continue
        dropped = [r for r in pure if ast.unparse(r.args[0]) == way]
        if recv is not dropped[0]:
            continue
        for call, _ in source.calls("send"):
            if ast.unparse(call.args[0]) == opposite[way]:
                dropped.append(call)
        edits = tuple(source.replaced(call, "None") for call in dropped)
        yield Mutation(edits, tuple(call.lineno for call in dropped))
    for statement in source.tree.body:
        is_meeting = isinstance(statement, ast.FunctionDef) and statement.name == "meet"
        if is_meeting:
            edits = []
            for part in statement.body[1:]:
                edits.append(source.replaced(part, "pass"))
            lines = [part.lineno for part in statement.body[1:]]
            yield Mutation(tuple(edits), tuple(lines))


Rule = Callable[[Source], Iterator[Mutation]]
RULES: dict[str, Rule] = {
    "wait dropped": wait_dropped,
    "wait late": wait_late,
    "load not waited": load_not_waited,
    "store not waited": store_not_waited,
    "message early": message_early,
    "slot too few": slot_too_few,
    "tile off": tile_off,
    "scope early": scope_early,
    "not reset": not_reset,
    "no rescale": no_rescale,
    "send skipped": send_skipped,
    "barrier dropped": barrier_dropped,
}
"""What makes the mutants of a kind of mistake."""

EARLY_CREDIT = "kernbench.benches.faults.early_credit:EarlyCredit"


def _early_credits(program: Program, source: Source) -> Iterator[Mutant]:
    """The queues give a slot back before it was read; the kernel is right."""
    received = {call.lineno for call, _ in source.calls("recv")}
    sent = {call.lineno for call, _ in source.calls("send")}
    if received and sent:
        lines = sorted(received | sent)
        text = source.text + TAIL
        spec = {"components.pe_ipcq.impl": EARLY_CREDIT}
        yield Mutant(program, "credit early", tuple(lines), 0, text, spec)
