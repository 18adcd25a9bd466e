"""What to write here for what one writes in Triton, torch and numpy.

One table, of which the documents print a part; the errors of kernels and benches look
into it. Knows no call itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

_SLICE = "a block is a slice: tl.load(x[i0:i1, j0:j1]); compute the bounds with min()"

WORDS: dict[str, str] = {
    # tl.<name>, and keywords of its calls
    "mask": f"nothing is masked; {_SLICE}",
    "other": "nothing is masked; load what is inside, and tl.where or tl.full the rest",
    "boundary_check": f"nothing is masked; {_SLICE}",
    "padding_option": f"nothing is padded; {_SLICE}",
    "eviction_policy": "there is no cache; leave it out",
    "cache_modifier": "there is no cache; leave it out",
    "volatile": "every load reads memory; leave it out",
    "allow_tf32": "products of f32 are exact to f32; leave it out",
    "input_precision": "products of f32 are exact to f32; leave it out",
    "max_num_imprecise_acc": "products are accumulated in f32; leave it out",
    "make_block_ptr": _SLICE,
    "advance": "take the next slice of the tensor: x[i0 + step : i1 + step]",
    "make_tensor_descriptor": _SLICE,
    "load_tensor_descriptor": _SLICE,
    "store_tensor_descriptor": "tl.store(y[i0:i1, j0:j1], handle)",
    "atomic_add": "there are no atomics; give each PE its own slice, send the partial "
    "sums with tl.send and tl.recv, and add them on one PE",
    "atomic_max": "there are no atomics; see atomic_add",
    "atomic_min": "there are no atomics; see atomic_add",
    "atomic_cas": "there are no atomics; order PEs with tl.send and tl.recv",
    "atomic_xchg": "there are no atomics; order PEs with tl.send and tl.recv",
    "debug_barrier": "a PE runs one kernel; order PEs with tl.send and tl.recv",
    "multiple_of": "nothing is vectorised by hints; leave it out",
    "max_contiguous": "nothing is vectorised by hints; leave it out",
    "max_constancy": "nothing is vectorised by hints; leave it out",
    "assume": "nothing is optimised by hints; leave it out",
    "static_print": "a kernel is plain Python: print(), or tl.device_print",
    "static_assert": "a kernel is plain Python: assert",
    "print": "tl.device_print",
    "swizzle2d": "compute it with Python's integers: the kernel is plain Python",
    "expand_dims": "tl.reshape(x, (rows, 1))",
    "view": "tl.reshape(x, shape)",
    "ravel": "tl.reshape(x, (-1,))",
    "permute": "tl.transpose(x, axes)",
    "broadcast_to": "operands broadcast by themselves; or x + tl.zeros(shape, dtype)",
    "broadcast": "operands broadcast by themselves",
    "zeros_like": "tl.zeros(x.shape, x.dtype)",
    "full_like": "tl.full(x.shape, value, x.dtype)",
    "zero": "tl.zeros(shape, dtype)",
    "empty": "tl.zeros(shape, dtype); or let a call make its result",
    "cat": "store the parts beside each other, and load the whole",
    "join": "store the parts beside each other, and load the whole",
    "split": "tl.slice(x, starts, shape)",
    "interleave": "store with steps: tl.store(y[::2], a); tl.store(y[1::2], b)",
    "descending": "tl.flip(tl.sort(x))",
    "histogram": "tl.sum(tl.eq(x, value)) for each value",
    "cumprod": "tl.exp(tl.cumsum(tl.log(x))) of positive numbers",
    "associative_scan": "tl.cumsum",
    "reduce": "tl.sum, tl.max, tl.min, tl.argmax, tl.argmin",
    "xor_sum": "load it, and reduce its .numpy() in Python",
    "sin": "there is no sine on a PE; put a table in memory, or compute it on the host",
    "cos": "there is no cosine on a PE; put a table in memory, or compute it on the "
    "host",
    "floor": "tl.cast(x, 'i32') of numbers that are not negative",
    "ceil": "-tl.cast(-x, 'i32') of numbers that are not positive; tl.cdiv of Python's",
    "fdiv": "a / b",
    "div_rn": "a / b",
    "sqrt_rn": "tl.sqrt",
    "umulhi": "load them, and multiply Python's integers",
    "rand": "draw on the host with torch.rng, and load it",
    "randn": "torch.tensor(torch.rng.standard_normal(shape), dtype)",
    "randint": "torch.tensor(torch.rng.integers(low, high, shape), dtype)",
    "philox": "draw on the host with torch.rng, and load it",
    "dot_scaled": "tl.dot, and multiply by the scales; or tl.composite with a "
    '"dequant" epilogue',
    "pointer_type": "pointers know their dtype: x.dtype",
    "program_ids": "tl.program_id(axis)",
    # handles
    "T": "tl.trans(x)",
    "mT": "tl.trans(x)",
    "to": "tl.cast(x, dtype)",
    "type": "x.dtype is a name, as 'f16'",
    "astype": "tl.cast(x, dtype)",
    "cast": "tl.cast(x, dtype)",
    "item": "int(x) or float(x) of what was loaded",
    "element_ty": "x.dtype, which is a name, as 'f16'",
    "stride": "a slice knows its strides: x[i0:i1, j0:j1]",
    "numel": "x.size of a handle, x.shape of a pointer",
    "trans": "tl.trans(x)",
    "keep_dims": "keepdims=True",
    "return_indices": "tl.argmax or tl.argmin, beside tl.max or tl.min",
    "dim": "axis=",
    "math": "tl.exp, tl.log, tl.sqrt …, without math",
    "libdevice": "tl.exp, tl.log, tl.sqrt …, without libdevice",
    "%": "of numbers int(x) % n; of blocks x - n * tl.cast(x / n, 'i32')",
    "//": "of numbers int(x) // n; of blocks tl.cast(x / n, 'i32')",
    "**": "x * x, or tl.exp(n * tl.log(x))",
    "&": "of two masks tl.minimum(a, b); of numbers int(a) & int(b)",
    "|": "of two masks tl.maximum(a, b); of numbers int(a) | int(b)",
    "^": "of two masks a != b; of numbers int(a) ^ int(b)",
    "~": "of a mask tl.eq(a, False); of a number ~int(a)",
    "<<": "x * 2 ** n",
    ">>": "tl.cast(x / 2 ** n, 'i32') of numbers that are not negative",
    "dot": "tl.dot(a, b), or a @ b",
    # launches and the host
    "num_warps": "a PE is not made of warps; leave it out",
    "num_stages": "say it in the kernel: load ahead with wait=False; leave it out",
    "num_ctas": "the PEs are those that hold the tensors; leave it out",
    "grid": "a launch runs on each PE that holds a shard of its tensors: "
    "torch.launch(name, kernel, …), with DPPolicy(cube=…, pe=…) for the tensors",
    "jit": "a kernel is a plain function whose last parameter is tl; leave it out",
    "autotune": "kernbench sweep tries the values of a bench's parameters",
    "heuristics": "compute them in the bench, and give them to the kernel",
    "triton": "a kernel is a plain function whose last parameter is tl; leave the "
    "import out (for tl.constexpr and tl.float16 outside of kernels: from kernbench "
    "import tl)",
    "tl": "a kernel's last parameter is tl; for tl.constexpr outside of kernels: from "
    "kernbench import tl",
    "torch": "the bench's run(torch) is given it; leave the import out",
    "ones": "torch.full(shape, 1, dtype)",
    "arange": "torch.tensor(np.arange(n), dtype)",
    "empty_like": "torch.empty(x.shape, x.dtype)",
    "allclose": "torch.expect(tensor, reference)",
    "testing": "torch.expect(tensor, reference)",
    "manual_seed": "torch.rng is seeded by --seed",
    "cuda": "tensors are on the machine as they are made; leave it out",
    "device": "tensors are on the machine as they are made; leave it out",
    "matmul": "compute the reference with numpy: a @ b",
    "softmax": "compute the reference with numpy",
}
"""What to write, by the name that there is not."""

_SAID = (
    (re.compile(r"unexpected keyword argument '(\w+)'"), ""),
    (re.compile(r"\bname '(\w+)' is not defined"), ""),
    (re.compile(r"'(?:str|Tensor\w+)' object has no attribute '(\w+)'$"), ""),
    (re.compile(r"operand type\(s\) for (\S+)( or \w+\(\))?: .*TensorHandle"), ""),
    (re.compile(r"operand type for unary (\S+): 'TensorHandle'"), ""),
    (re.compile(r"No module named '(\w+)"), ""),
    (re.compile(r"'function' object is not subscriptable"), "grid"),
)
"""How Python says that a name is none; and the name, where it does not say it."""


def instead_of(name: str, known: Iterable[str] = ()) -> str:
    """What to write for a name that there is not, as the end of an error.

    It is the table's, else the nearest of the ``known`` names; empty if there is none.
    """
    if name in WORDS:
        return f"; here: {WORDS[name]}"
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def hint(said: str) -> str:
    """What to write, as the end of what Python said; empty if there is nothing."""
    for pattern, name in _SAID:
        found = pattern.search(said)
        if found:
            return instead_of(name or found[1])
    return ""


def words_as_markdown() -> Iterator[str]:
    """The table, a line for each name."""
    columns = max(map(len, WORDS))
    yield f"    {'in Triton':<{columns}}  here"
    for name, here in sorted(WORDS.items(), key=lambda item: item[0].lower()):
        yield f"    {name:<{columns}}  {here}"
