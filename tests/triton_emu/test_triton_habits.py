"""What a user of Triton writes and `tl` has not: each mistake, and what it is told."""

import pytest

from kernbench.common.from_triton import WORDS
from kernbench.errors import KernbenchError
from kernbench.runtime_api import run_bench

BENCH = """\
import numpy as np
from kernbench.runtime_api.registry import bench
{imports}

{decorated}def kernel({parameters}tl):
    {body}


@bench(name="habit", description="one mistake")
def run(torch):
    x = torch.tensor(np.arange(64, dtype="f4"), name="x")
    y = torch.empty((64,), "f32", name="y")
    {launch}
"""

LAUNCH = 'torch.launch("k", kernel, x, y)'

IN_KERNEL = {
    "tl.load(x + tl.arange(0, 64), mask=tl.arange(0, 64) < 60)": "tl.load(x[i0:i1",
    "tl.load(x + tl.arange(0, 64))": "tl.load(x[i0:i1",
    "tl.load(x[tl.arange(0, 64)])": "a slice of a pointer is by numbers",
    "tl.load(x, (64,), other=0.0)": "tl.where or tl.full the rest",
    "tl.load(x[0:70])": "is not inside it, which is 0:64",
    "tl.load(x[-4:])": "is not inside it",
    "tl.load(x[::-1])": "a step of at least 1",
    "tl.load(x[0:8], dtype='f16')": "leave out dtype=",
    "tl.load(x, (64,), eviction_policy='evict_last')": "leave it out",
    "tl.load(x, (64,), cache_modifier='.cg')": "leave it out",
    "tl.make_block_ptr(x, (64,), (1,), (0,), (8,), (0,))": "tl.load(x[i0:i1",
    "tl.advance(x, (8,))": "x[i0 + step : i1 + step]",
    "tl.make_tensor_descriptor(x, [64], [1], [8])": "tl.load(x[i0:i1",
    "tl.store(y, tl.load(x), mask=None)": "nothing is masked",
    "tl.store(y[0:8], tl.load(x))": "slice or tl.reshape one to fit",
    "tl.store(y[0:8], tl.cast(tl.load(x[0:8]), 'f16'))": "tl.cast it to f32",
    "tl.store(y, 0)": "tl.load or compute one",
    "tl.atomic_add(y, tl.load(x))": "tl.send and tl.recv",
    "tl.debug_barrier()": "tl.send and tl.recv",
    "tl.multiple_of(x, 16)": "leave it out",
    "tl.static_print('x')": "tl.device_print",
    "tl.static_assert(True)": "assert",
    "tl.load(x).T": "tl.trans(x)",
    "tl.load(x).to('f16')": "tl.cast(x, dtype)",
    "(2 * tl.load(x))[:, None]": "tl.reshape(x, shape)",
    "tl.expand_dims(tl.load(x), 0)": "tl.reshape(x, (rows, 1))",
    "tl.broadcast_to(tl.load(x), (2, 64))": "broadcast by themselves",
    "tl.zeros_like(tl.load(x))": "tl.zeros(x.shape, x.dtype)",
    "tl.load(x) % 2": "int(x) % n",
    "tl.load(x) // 2": "int(x) // n",
    "tl.load(x) ** 2": "x * x",
    "(tl.load(x) > 2) & (tl.load(x) < 9)": "tl.minimum(a, b)",
    "(tl.load(x) > 2) | (tl.load(x) < 9)": "tl.maximum(a, b)",
    "~(tl.load(x) > 2)": "tl.eq(a, False)",
    "tl.sum(tl.load(x), axis=0, keep_dims=True)": "keepdims=True",
    "tl.max(tl.load(x), axis=0, return_indices=True)": "tl.argmax",
    "tl.sum(tl.load(x), dim=0)": "axis=",
    "tl.zeros((8,), x.dtype.element_ty)": "x.dtype, which is a name",
    "tl.zeros((8,), x.type.element_ty)": "x.dtype is a name",
    "x.stride(0)": "x[i0:i1, j0:j1]",
    "tl.load(x).trans()": "tl.trans(x)",
    "tl.math.exp(tl.load(x))": "without math",
    "tl.range(0, 8, num_stages=3)": "wait=False",
    "tl.store(y[0:8], 1.0)": "tl.full(shape, number, dtype)",
    "tl.load(x, 64)": "has to be a tuple of whole numbers, as (n,)",
    "tl.load(x[x > 3])": "is no whole number",
    "tl.sort(tl.load(x), descending=True)": "tl.flip(tl.sort(x))",
    "tl.topk(tl.load(x), 65)": "at most 64",
    "tl.gather(tl.load(x), tl.zeros((2, 2), 'i32'))": "gather of [(64,), (2, 2)]",
    "tl.sin(tl.load(x))": "on the host",
    "tl.rand(0, 0)": "torch.rng",
    "tl.associative_scan(tl.load(x), 0, max)": "tl.cumsum",
    "tl.reduce(tl.load(x), 0, max)": "tl.sum",
    "tl.fdiv(tl.load(x), 2.0)": "a / b",
    "tl.sofmax(tl.load(x))": "did you mean softmax",
    "tl.zeros((8,), 'float23')": "valid: f16",
    "x[0:8] + 4": "add to its indices",
    "if tl.sum(tl.load(x)) > 0: pass": "tensor.numpy() between launches",
    "tl.dot(tl.load(x), tl.load(x), allow_tf32=True)": "leave it out",
    "n: tl.constexpr = 4; undefined_name": "'undefined_name' is not defined",
}

IN_BENCH = {
    "kernel[(8,)](x, y)": "torch.launch(name, kernel",
    'torch.launch("k", kernel, x, y, num_warps=4)': "leave it out",
    'torch.launch("k", kernel, x, y, BLOCK=8)': "the kernel takes (x, y, tl)",
    'torch.launch("k", kernel, x)': "missing a required argument: 'y'",
    "torch.randn((8,))": "torch.rng.standard_normal",
    "torch.arange(8)": "np.arange",
    "torch.allclose(x, y)": "torch.expect",
    "torch.zeros((8,), 'float23')": "valid: f16",
    "torch.empty_like(x)": "torch.empty(x.shape, x.dtype)",
}

AT_THE_TOP = {
    "import triton": "leave the import out",
    "import triton.language as tl": "leave the import out",
    "import torch": "leave the import out",
    "def other(x, BLOCK: tl.constexpr, tl): pass": "from kernbench import tl",
    "from kernbench import tl; tl.load(0)": "outside of kernels",
}


SHARDED = """x = torch.zeros((16, 16), "f32", DPPolicy(num_cubes=1), name="z")
    y = torch.zeros((16, 16), "f32", DPPolicy(pe="row_wise", num_cubes=1), name="w")
    torch.launch("k", kernel, x, y{more})"""

BAD_INPUT = {
    "tl.load(x[0:17])": "0:17 is not inside it, which is 0:16",
    "tl.store(y[15:17], tl.load(x[0:2]))": "15:17 is not inside it",
    "tl.ref(y[0:4])": "y[0:4] covers 2 shards",
    "tl.composite(a=x, b=x, out_ptr=y)": "is no handle",
    "tl.composite(a=tl.ref(x), b=tl.ref(x), out_ptr=y[:, :])": "covers 8 shards",
    "tl.load(x[0:8:-1])": "a step of -1; a DMA goes upwards",
    "tl.ref(x[0:8, ::2])": "leave out the step of its last axis",
    "tl.composite(a=tl.ref(x), b=tl.ref(x[:, :8]), out_ptr=x[:, ::2])": "the step of",
    "tl.load(x, (2, 2, 2, 2), strides=(60, 24, 10, 2))": "cannot have 5 dimensions",
    "tl.load(x[0:8], dtype='f16')": "f16 has another size",
    "tl.store(y[0:8], tl.zeros((8, 16), 'i8'))": "tl.cast it to f32",
}


@pytest.mark.parametrize("line", BAD_INPUT)
@pytest.mark.slow
def test_bad_input_is_one_error_with_the_kernels_line(tmp_path, line):
    said = said_of(
        tmp_path,
        imports="from kernbench.runtime_api import DPPolicy",
        body=line,
        launch=SHARDED.format(more=""),
    )
    assert BAD_INPUT[line].replace("y[0:4]", "w[0:4]") in said
    assert "habit.py:6" in said
    assert "\n" not in said


def test_a_keyword_that_the_kernel_lacks_names_its_line(tmp_path):
    said = said_of(
        tmp_path,
        imports="from kernbench.runtime_api import DPPolicy",
        launch=SHARDED.format(more=", BLOCK=8"),
    )
    assert "'BLOCK'" in said
    assert said.endswith("habit.py:5")


def said_of(folder, **parts):
    """The error of a bench with a mistake."""
    parts = {
        "imports": "",
        "decorated": "",
        "parameters": "x, y, ",
        "body": "tl.store(y, tl.load(x))",
        "launch": LAUNCH,
    } | parts
    file = folder / "habit.py"
    file.write_text(BENCH.format(**parts))
    with pytest.raises(KernbenchError) as error:
        run_bench(str(file))
    return str(error.value)


@pytest.mark.parametrize("line", IN_KERNEL)
@pytest.mark.slow
def test_a_habit_in_a_kernel_is_told_what_to_write(tmp_path, line):
    said = said_of(tmp_path, body=line)
    assert IN_KERNEL[line] in said
    assert "habit.py:6" in said


@pytest.mark.parametrize("line", IN_BENCH)
@pytest.mark.slow
def test_a_habit_in_a_bench_is_told_what_to_write(tmp_path, line):
    assert IN_BENCH[line] in said_of(tmp_path, launch=line)


@pytest.mark.parametrize("line", AT_THE_TOP)
def test_an_import_is_told_to_be_left_out(tmp_path, line):
    assert AT_THE_TOP[line] in said_of(tmp_path, imports=line)


def test_a_launch_hands_keywords_to_the_kernel(tmp_path):
    file = tmp_path / "habit.py"
    file.write_text(
        BENCH.format(
            imports="from kernbench import tl",
            decorated="",
            parameters="x, y, BLOCK: tl.constexpr, ",
            body="""for i in tl.range(0, 64, tl.constexpr(BLOCK)):
        tl.store(y[i : i + BLOCK], tl.exp2(tl.load(x[i : i + BLOCK])))""",
            launch="""torch.launch("k", kernel, x, y=y, BLOCK=16)
    torch.expect(y, np.exp2(np.arange(64.0)))""",
        )
    )
    assert run_bench(str(file), verify=True).report.ok


def test_no_word_is_known_to_tl():
    from kernbench.triton_emu.tl_context import TLContext

    # of a handle, and of torch
    of_others = {"cast", "dot", "arange", "softmax", "trans"}
    assert [word for word in WORDS if hasattr(TLContext, word)] == sorted(
        of_others, key=[*WORDS].index
    )


def test_dtypes_go_by_the_names_of_numpy_torch_and_triton(tmp_path):
    file = tmp_path / "habit.py"
    file.write_text(
        BENCH.format(
            imports="from kernbench import tl",
            decorated="",
            parameters="x, y, dtype: tl.constexpr, ",
            body="""x = tl.cast(tl.load(x), tl.bfloat16)
    assert x.dtype == "bf16" and tl.load(y[0:4], dtype=np.int32).dtype == "i32"
    tl.store(y, tl.cast(x + tl.zeros((64,), dtype), np.float32))""",
            launch="""y = torch.zeros((64,), torch.float32, name="z")
    torch.launch("k", kernel, x, y, tl.float8e5)
    torch.expect(y, np.arange(64))""",
        )
    )
    assert run_bench(str(file), verify=True).report.ok


def test_an_index_outside_is_named_where_it_is_executed(tmp_path):
    file = tmp_path / "habit.py"
    file.write_text(
        BENCH.format(
            imports="",
            decorated="",
            parameters="x, y, ",
            body="""x = tl.load(x)
    tl.store(y, tl.gather(x, tl.cast(x + 1, "i32")))""",
            launch=LAUNCH,
        )
    )
    with pytest.raises(KernbenchError, match=r"gather.* indices from 1 to 64"):
        run_bench(str(file), verify=True)
