"""``tl.recv(…, out=)``: a payload in the place of a tensor that there is."""

import numpy as np
import pytest
from ipcq_runs import machine, talk

from kernbench.errors import KernelError

N = 3000  # more than a slot


@pytest.fixture(scope="module")
def graph(layout_cache):
    return machine(layout_cache)


def test_a_payload_takes_the_place_of_a_part_of_a_tensor(graph):
    def program(rank, mine, out, tl):
        x = tl.load(mine, (N,), "f32")
        if rank == 0:
            tl.send("E", tl.slice(x, (0,), (2000,)))
        else:
            came = tl.recv("W", (2000,), "f32", out=tl.slice(x, (500,), (2000,)))
            assert float(came[0]) == 0.0
            tl.store(out, x)

    run = talk(graph, program, N)
    expected = run.data[1].copy()
    expected[500:2500] = run.data[0][:2000]
    np.testing.assert_array_equal(run.out[1], expected)


def test_what_is_still_being_sent_is_not_overwritten(graph):
    def program(rank, mine, out, tl):
        x = tl.load(mine, (N,), "f32")
        tl.send("E", x, wait=False)
        if rank == 0:
            tl.store(out, tl.recv("W", (N,), "f32", out=x))
        else:
            came = tl.recv("W", (N,), "f32")
            tl.store(out, came)

    run = talk(graph, program, N, slots=1)
    np.testing.assert_array_equal(run.out[:2], run.data[1::-1])


@pytest.mark.parametrize(("shape", "dtype"), [((N - 1,), "f32"), ((N,), "f16")])
def test_a_tensor_of_another_shape_or_dtype_is_refused(graph, shape, dtype):
    def program(rank, mine, out, tl):
        tl.recv("W", shape, dtype, out=tl.full((N,), 0.0, "f32"))

    with pytest.raises(KernelError, match=r"recv: .* cannot take the result"):
        talk(graph, program, N)
