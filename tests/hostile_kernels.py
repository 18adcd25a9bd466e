"""Kernels that do what no kernel should: a bench whose parameter says which one.

``HOSTILE`` is the table. Each gets a pointer to 8 x 8 ones and the name of a folder.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import greenlet
import numpy as np

from kernbench.benches import bench
from kernbench.errors import KernelError
from kernbench.runtime_api import DPPolicy

MIB = 1 << 20


@dataclass(frozen=True)
class Hostile:
    """One of the kernels.

    ``error`` is in the line that the run ends with, None: the run is fine. ``code`` is
    what the program exits with. One that harms its process has ``own_process``. It runs
    on ``pes`` PEs, in so many ``launches``.
    """

    kernel: Callable[..., Any]
    error: str | None
    code: int
    own_process: bool = False
    pes: int = 1
    launches: int = 1


HOSTILE: dict[str, Hostile] = {}


def hostile(error, code=1, **options):
    """Put a kernel into the table."""

    def add(kernel):
        HOSTILE[kernel.__name__] = Hostile(kernel, error, code, **options)
        return kernel

    return add


def fine(**options):
    """Put a kernel into the table that does no harm."""
    return hostile(None, 0, **options)


def load(x, tl):
    return tl.load(x, (8, 8), "f32")


# -- what it raises --------------------------------------------------------------------


class OfNobody(BaseException):
    """Neither ours nor an Exception."""


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no")


class Leaving(Exception):
    def __str__(self):
        raise SystemExit(0)


class Wordless(Exception):
    def __str__(self):
        return 3


class Text(str):
    def __getitem__(self, index):
        raise RuntimeError("no")

    __len__ = __iter__ = __format__ = __getitem__


class Strange(Exception):
    def __str__(self):
        return Text("strange")


class Demanding(KernelError):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@hostile("GeneratorExit")
def raises_generator_exit(x, folder, tl):
    raise GeneratorExit


@hostile("SystemExit: 0")
def raises_system_exit(x, folder, tl):
    load(x, tl)
    sys.exit(0)


@hostile("OfNobody: mine")
def raises_a_base_exception(x, folder, tl):
    load(x, tl)
    raise OfNobody("mine")


@hostile("GreenletExit")
def raises_greenlet_exit(x, folder, tl):
    load(x, tl)
    raise greenlet.GreenletExit


@hostile("StopIteration: 3")
def raises_stop_iteration(x, folder, tl):
    load(x, tl)
    raise StopIteration(3)


@hostile("interrupted", 130, own_process=True)
def is_interrupted(x, folder, tl):
    load(x, tl)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)


@hostile("MemoryError")
def wants_all_memory(x, folder, tl):
    bytearray(1 << 62)


@hostile("RecursionError")
def recurses(x, folder, tl):
    recurses(x, folder, tl)


@hostile("Mute: (it cannot be shown: its __str__ raised RuntimeError)")
def raises_what_cannot_be_shown(x, folder, tl):
    raise Mute


@hostile("Leaving: (it cannot be shown: its __str__ raised SystemExit)")
def raises_what_leaves_when_shown(x, folder, tl):
    raise Leaving


@hostile("Wordless: (it cannot be shown: its __str__ raised TypeError)")
def raises_what_shows_a_number(x, folder, tl):
    raise Wordless


@hostile("Strange: strange")
def raises_a_text_of_its_own(x, folder, tl):
    raise Strange


@hostile("x… (10,485,760 characters)")
def raises_ten_megabytes(x, folder, tl):
    raise ValueError("x" * 10 * MIB)


@hostile("x… (10,485,760 characters)")
def raises_ten_megabytes_of_our_error(x, folder, tl):
    raise KernelError("x" * 10 * MIB)


@hostile("ValueError: ")
def raises_what_is_no_unicode(x, folder, tl):
    raise ValueError("\ud800\udcff")


@hostile("ValueError: a b")
def raises_many_lines(x, folder, tl):
    raise ValueError("a\r\nb\n\n")


@hostile("1 and 2")
def raises_a_kernel_error_of_its_own(x, folder, tl):
    raise Demanding(1, 2)


@hostile("ExceptionGroup: several (2 sub-exceptions)")
def raises_a_group(x, folder, tl):
    raise ExceptionGroup("several", [ValueError("a"), SyntaxError("b")])


@hostile("ValueError: mine")
def raises_a_circle(x, folder, tl):
    error = ValueError("mine")
    error.__cause__ = error
    error.__notes__ = [3, "x" * MIB]
    raise error


# -- what it is ------------------------------------------------------------------------


@hostile("TypeError: it is a generator or a coroutine")
def yields(x, folder, tl):
    yield load(x, tl)


@hostile("TypeError: it is a generator or a coroutine")
async def awaits(x, folder, tl):
    load(x, tl)


@hostile("TypeError: it is a generator or a coroutine")
async def yields_and_awaits(x, folder, tl):
    yield load(x, tl)


@fine()
def returns_a_value(x, folder, tl):
    return load(x, tl)


@hostile("launch 'k': too many positional arguments; the kernel takes (tl)", code=2)
def takes_too_little(*, tl):
    load(0, tl)


class Callable_:
    def __call__(self, x, folder, tl):
        load(x, tl)


HOSTILE["is_an_object"] = Hostile(Callable_(), None, 0)
HOSTILE["is_a_partial"] = Hostile(
    partial(partial(load), tl=None), "the kernel takes (x, tl)", 2
)
HOSTILE["is_of_python"] = Hostile(print, "TypeError: ", 1)
HOSTILE["is_no_function"] = Hostile(3, "3 is no kernel; give a function", 2)
_made: dict[str, Any] = {}
exec("def of_no_file(x, folder, tl):\n    tl.load(x, (8, 8), 'f32')\n    1 / 0", _made)
HOSTILE["is_of_no_file"] = Hostile(
    _made["of_no_file"], "at <string>:3: ZeroDivisionError", 1
)


# -- where it goes ---------------------------------------------------------------------


@hostile("switched to a greenlet of the simulator")
def switches_to_the_simulator(x, folder, tl):
    load(x, tl)
    greenlet.getcurrent().parent.switch("me")


@hostile("switched to a greenlet of the simulator")
def switches_with_nothing(x, folder, tl):
    greenlet.getcurrent().parent.switch()
    load(x, tl)


@hostile("switched to a greenlet of the simulator")
def ends_another_greenlet_in_the_simulator(x, folder, tl):
    hub = greenlet.getcurrent().parent
    greenlet.greenlet(str, hub).switch()


@hostile("load of sip0.cube0.pe0.pe_cpu in another thread, greenlet or kernel")
def loads_in_a_greenlet(x, folder, tl):
    greenlet.greenlet(lambda: load(x, tl)).switch()


@hostile("load of sip0.cube0.pe0.pe_cpu in another thread, greenlet or kernel")
def loads_in_a_thread(x, folder, tl):
    errors = []

    def go():
        try:
            load(x, tl)
        except KernelError as error:
            errors.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    raise errors[0]


@hostile("ended, but its thread idle goes on; join it in the kernel")
def leaves_a_thread(x, folder, tl):
    load(x, tl)
    threading.Thread(target=time.sleep, args=(0.2,), name="idle").start()


@hostile(
    "ended, but its thread waiting goes on; join it in the kernel", own_process=True
)
def leaves_a_thread_for_ever(x, folder, tl):
    load(x, tl)
    wait = threading.Event().wait
    threading.Thread(target=wait, name="waiting").start()


@fine()
def joins_its_thread(x, folder, tl):
    thread = threading.Thread(target=time.sleep, args=(0.001,))
    thread.start()
    load(x, tl)
    thread.join()


_kept: list[Any] = []


@hostile(
    "load of sip0.cube0.pe0.pe_cpu in another thread, greenlet or kernel", launches=2
)
def uses_what_another_launch_got(x, folder, tl):
    _kept.append(tl)
    load(x, _kept[0])


@fine(own_process=True)
def changes_the_folder(x, folder, tl):
    os.chdir("/")
    load(x, tl)


@fine(own_process=True)
def removes_the_folder(x, folder, tl):
    gone = os.path.join(folder, "gone")
    os.mkdir(gone)
    os.chdir(gone)
    os.rmdir(gone)
    load(x, tl)


@hostile(
    "cannot write the standard output: I/O operation on closed file",
    code=2,
    own_process=True,
)
def closes_stdout(x, folder, tl):
    sys.stdout.close()
    load(x, tl)


@hostile(
    "cannot write the standard output: Bad file descriptor", code=2, own_process=True
)
def closes_the_descriptor_of_stdout(x, folder, tl):
    os.close(1)
    load(x, tl)


@fine(own_process=True)
def forks(x, folder, tl):
    load(x, tl)
    os.fork()
    load(x, tl)


@fine(own_process=True)
def forks_and_raises_there(x, folder, tl):
    load(x, tl)
    if os.fork() == 0:
        raise ValueError("mine")


@fine(own_process=True)
def forks_and_ends_there(x, folder, tl):
    load(x, tl)
    os.fork()


# -- what it asks for ------------------------------------------------------------------


class Unshown:
    def __repr__(self):
        raise OfNobody("mine")


@hostile("load: address nan is no whole number")
def loads_from_nan(x, folder, tl):
    tl.load(float("nan"), (8, 8), "f32")


@hostile("store: address np.float32(inf) is no whole number")
def stores_at_infinity(x, folder, tl):
    tl.store(np.float32("inf"), load(x, tl))


@hostile("ref: address None is no whole number")
def refers_to_nothing(x, folder, tl):
    tl.ref(None, (8, 8), "f32")


@hostile("composite: address 1.5 is no whole number")
def writes_a_product_between_addresses(x, folder, tl):
    a = tl.ref(x, (8, 8), "f32")
    tl.composite(a=a, b=a, out_ptr=1.5)


@hostile("AddressError: load of f32[8, 8] at 0x1")
def loads_from_afar(x, folder, tl):
    tl.load(1 << 5000, (8, 8), "f32")


@hostile("AddressError: load of f32[8, 8] at -0x40")
def loads_from_below(x, folder, tl):
    tl.load(-64, (8, 8), "f32")


@hostile("load: shape (nan, 8) has to be a tuple of whole")
def loads_nan_rows(x, folder, tl):
    tl.load(x, (float("nan"), 8), "f32")


@hostile("load needs ")
def loads_more_than_there_is(x, folder, tl):
    tl.load(x, (1 << 40, 1 << 40), "f32")


@hostile("""unknown dtype "['f32']"; valid: """)
def loads_a_dtype_that_is_a_list(x, folder, tl):
    tl.load(x, (8, 8), ["f32"])


@hostile("OfNobody: mine")
def stores_what_cannot_be_shown(x, folder, tl):
    tl.store(x, Unshown())


@hostile("OfNobody: mine")
def prints_what_cannot_be_shown(x, folder, tl):
    tl.device_print(Unshown())


@hostile("x… (10,485,")
def asserts_ten_megabytes(x, folder, tl):
    tl.device_assert(False, "x" * 10 * MIB)


@hostile("ZeroDivisionError", pes=2)
def closes_where_another_is(x, folder, tl):
    if tl.program_id(0) == 0:
        load(x, tl)
        1 / 0  # noqa: B018
    while True:
        try:
            load(x, tl)
        except BaseException:
            pass
        finally:
            load(x, tl)


@hostile("ZeroDivisionError", pes=2)
def raises_as_it_is_stopped(x, folder, tl):
    if tl.program_id(0) == 0:
        load(x, tl)
        1 / 0  # noqa: B018
    try:
        for _ in range(9):
            load(x, tl)
    finally:
        raise ValueError("stopped")


@bench(name="hostile", description="a kernel that does what none should")
def run(torch, kernel="yields", folder="."):
    """``kernel`` is a name of HOSTILE."""
    row = HOSTILE[kernel]
    dp = DPPolicy(pe="replicate", num_cubes=1, num_pes=row.pes)
    x = torch.tensor(np.ones((8, 8), np.float32), dp=dp, name="x")
    for _ in range(row.launches):
        torch.launch("k", row.kernel, x, folder)
