"""What tiles of composites take of a TCM, and what is said where they do not fit."""

from dataclasses import replace

import pytest

from kernbench.errors import KernelError, TcmOverflowError
from kernbench.runtime_api import DPPolicy
from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology import TopologySpec, build_topology
from kernbench.topology.spec import CubeMeshSpec, SipsSpec

KIB = 1024


@pytest.fixture
def run(simulate, layout_cache):
    """run(kernel, shapes, dtype, size_kib, window) -> the engine, run to its end.

    The kernel gets pointers to zeros of those shapes.
    """

    def run(kernel, *shapes, dtype="f16", size_kib=2048, window=8, **tile):
        spec = TopologySpec()
        pe = replace(
            spec.pe,
            tcm=replace(spec.pe.tcm, size_kib=size_kib),
            tile=replace(spec.pe.tile, window=window, **tile),
        )
        graph = build_topology(
            replace(
                spec,
                system=replace(spec.system, sips=SipsSpec(count=1)),
                sip=replace(spec.sip, cube_mesh=CubeMeshSpec(1, 1)),
                pe=pe,
            ),
            layout_cache,
        )

        def bench(torch):
            torch.launch("k", kernel, *[torch.zeros(shape, dtype) for shape in shapes])

        return simulate(bench, graph=graph)

    return run


def product(m, k, n, **options):
    """A kernel of one composite of m, k, n from HBM; its shapes."""

    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.ref(a_ptr, (m, k), a_ptr.dtype)
        b = tl.ref(b_ptr, (k, n), b_ptr.dtype)
        tl.composite(a=a, b=b, out_ptr=c_ptr, wait=True, **options)

    return kernel, (m, k), (k, n), (m, n)


def tiles_of(run):
    (record,) = (r for r in run.log if r.op_name.startswith("composite_"))
    return tuple(record.params["tile"])


# In each: 4 tiles along m, one along n and 4 along k, of 64^3 f16 (8 KiB an operand):
# 8 in flight, of which 2 end a K loop.
EXACT_KIB = 8 * (8 + 8) + 2 * 8


def test_the_window_times_a_and_b_and_the_outputs_is_what_has_to_fit(run):
    shapes = product(256, 256, 64, tile=(64, 64, 64))
    assert tiles_of(run(*shapes, size_kib=EXACT_KIB)) == (64, 64, 64)
    with pytest.raises(TcmOverflowError, match=f"needs {EXACT_KIB * KIB} bytes"):
        run(*shapes, size_kib=EXACT_KIB - 1)


def test_a_smaller_window_needs_less(run):
    shapes = product(256, 256, 64, tile=(64, 64, 64))
    run(*shapes, size_kib=2 * 16 + 8, window=2)
    with pytest.raises(TcmOverflowError, match="window=2"):
        run(*shapes, size_kib=2 * 16 + 7, window=2)


def test_no_more_tiles_count_than_there_are(run):
    run(*product(128, 64, 64, tile=(64, 64, 64)), size_kib=2 * (16 + 8))
    with pytest.raises(TcmOverflowError):
        run(*product(128, 64, 64, tile=(64, 64, 64)), size_kib=2 * (16 + 8) - 1)


def test_a_tile_beyond_the_operands_takes_what_they_have(run):
    large = product(64, 64, 64, tile=(2048, 2048, 2048))
    assert tiles_of(run(*large, size_kib=24)) == (2048, 2048, 2048)
    with pytest.raises(TcmOverflowError, match=f"needs {24 * KIB} bytes"):
        run(*large, size_kib=23)


def test_a_tile_that_fits_is_named_and_does(run):
    with pytest.raises(TcmOverflowError) as caught:
        run(*product(512, 512, 512, tile=(512, 512, 512)), size_kib=512)
    text = str(caught.value)
    assert "pe.tcm.size_kib=512" in text
    assert "pe.tile.window=8" in text
    assert "test_tile_buffers.py:" in text
    named = text.split("tile=")[1].split(" fits")[0]
    tile = tuple(int(extent) for extent in named.strip("()").split(","))
    assert tiles_of(run(*product(512, 512, 512, tile=tile), size_kib=512)) == tile


@pytest.mark.slow
@pytest.mark.parametrize("size_kib", [5, 10, 24])
@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_the_default_tile_is_chosen_to_fit(run, size_kib, dtype):
    made = run(*product(96, 64, 72), dtype=dtype, size_kib=size_kib)
    m, n, k = tiles_of(made)
    size = {"f16": 2, "f64": 8}[dtype]
    in_flight = min(8, -(-96 // m) * -(-72 // n) * -(-64 // k))
    ends = -(-in_flight // -(-64 // k))
    needed = size * (in_flight * (m * k + k * n) + ends * m * n)
    assert needed <= size_kib * KIB
    assert m * n * k > 1


def test_the_default_tile_stays_where_it_fits(run):
    assert tiles_of(run(*product(256, 128, 192))) == (64, 64, 64)


def test_operands_in_scratch_take_no_tile_buffers(run):
    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.load(a_ptr, (128, 128))
        b = tl.load(b_ptr, (128, 64))
        tl.composite(a=a, b=b, out_ptr=c_ptr, tile=(64, 64, 128), wait=True)

    shapes = (128, 128), (128, 64), (128, 64)
    operands = 32 + 16
    run(kernel, *shapes, size_kib=operands + 2 * 8)
    with pytest.raises(TcmOverflowError, match="16384 bytes of TCM"):
        run(kernel, *shapes, size_kib=operands + 2 * 8 - 1)


@pytest.mark.parametrize(("scope", "times"), [("output_tile", 1), ("k_tile", 2)])
def test_an_operand_of_the_epilogue_in_hbm_takes_a_buffer(run, scope, times):
    def kernel(a_ptr, b_ptr, bias_ptr, c_ptr, tl):
        a = tl.ref(a_ptr, (64, 128))
        b = tl.ref(b_ptr, (128, 64))
        steps = [("bias", tl.ref(bias_ptr, (64, 64)), scope)]
        tl.composite("gemm", a, b, c_ptr, steps, True, tile=(64, 64, 64))

    shapes = (64, 128), (128, 64), (64, 64), (64, 64)
    needed = 2 * 16 + times * 8 + 8
    run(kernel, *shapes, size_kib=needed)
    with pytest.raises(TcmOverflowError):
        run(kernel, *shapes, size_kib=needed - 1)


def test_tiles_of_an_elementwise_op_count_their_operands(run):
    def kernel(a_ptr, row_ptr, c_ptr, tl):
        a = tl.ref(a_ptr, (512, 512))
        row = tl.ref(row_ptr, (1, 512))
        tl.composite("add", a, row, c_ptr, tile=(64, 64, 1), wait=True)

    shapes = (512, 512), (1, 512), (512, 512)
    needed = 8 * (8 + 8) + 1  # and 8 x 128 bytes of the row
    run(kernel, *shapes, size_kib=needed)
    with pytest.raises(TcmOverflowError, match=r"composite add: .* fits"):
        run(kernel, *shapes, size_kib=needed - 1)


def test_scratch_that_is_taken_counts(run):
    def kernel(a_ptr, b_ptr, c_ptr, tl):
        tl.zeros((64 * KIB,), "u8")
        a = tl.ref(a_ptr, (256, 256))
        b = tl.ref(b_ptr, (256, 64))
        tl.composite(a=a, b=b, out_ptr=c_ptr, tile=(64, 64, 64), wait=True)

    shapes = (256, 256), (256, 64), (256, 64)
    run(kernel, *shapes, size_kib=64 + EXACT_KIB)
    with pytest.raises(TcmOverflowError, match="beside scratch"):
        run(kernel, *shapes, size_kib=64 + EXACT_KIB - 1)


def test_receive_rings_count(one_cube):
    kernel, *shapes = product(256, 256, 64, tile=(64, 64, 64))

    def launch(reserved):
        engine = GraphEngine(one_cube)
        engine.sim.reserved["tcm", 0, 0, 0] = reserved
        torch = Torch(engine)
        policy = DPPolicy(num_pes=1)

        def bench(_):
            tensors = [torch.zeros(shape, "f16", policy) for shape in shapes]
            torch.launch("k", kernel, *tensors)

        engine.run(bench)

    whole = 2048 * KIB
    launch(reserved=whole - EXACT_KIB * KIB)
    with pytest.raises(TcmOverflowError, match="receive rings"):
        launch(reserved=whole - EXACT_KIB * KIB + 1)


def test_scratch_cannot_take_what_tiles_under_way_hold(run):
    def kernel(a_ptr, b_ptr, c_ptr, wait, tl):
        a = tl.ref(a_ptr, (256, 256))
        b = tl.ref(b_ptr, (256, 64))
        done = tl.composite(a=a, b=b, out_ptr=c_ptr, tile=(64, 64, 64))
        if wait:
            tl.wait(done)
        tl.zeros((8 * KIB,), "u8")

    shapes = (256, 256), (256, 64), (256, 64)

    def waits(*pointers, tl):
        kernel(*pointers, True, tl=tl)

    def goes_on(*pointers, tl):
        kernel(*pointers, False, tl=tl)

    run(waits, *shapes, size_kib=EXACT_KIB)
    run(goes_on, *shapes, size_kib=EXACT_KIB + 8)
    with pytest.raises(TcmOverflowError, match=r"composite under way.*tl\.wait"):
        run(goes_on, *shapes, size_kib=EXACT_KIB + 7)


def test_composites_that_queue_hold_their_buffers_one_after_the_other(run):
    def kernel(a_ptr, b_ptr, c_ptr, tl):
        a = tl.ref(a_ptr, (256, 256))
        b = tl.ref(b_ptr, (256, 64))
        for _ in range(2):
            tl.composite(a=a, b=b, out_ptr=c_ptr, tile=(64, 64, 64))

    shapes = (256, 256), (256, 64), (256, 64)
    log = run(kernel, *shapes, size_kib=EXACT_KIB).log
    first, second = [r for r in log if r.op_name == "composite_gemm"]
    reads = [r.t_start for r in log if r.op_name == "TileToken/DMA_READ"]
    assert len(reads) == 2 * 16
    assert max(reads[:16]) < first.t_end <= second.t_start == reads[16]
    with pytest.raises(TcmOverflowError, match=f"needs {EXACT_KIB * KIB} bytes"):
        run(kernel, *shapes, size_kib=EXACT_KIB - 1)


def test_where_nothing_fits_the_remedy_is_room(run):
    def kernel(a_ptr, b_ptr, c_ptr, tl):
        tl.zeros((KIB,), "u8")
        a = tl.ref(a_ptr, (256, 256))
        b = tl.ref(b_ptr, (256, 64))
        tl.composite(a=a, b=b, out_ptr=c_ptr)

    with pytest.raises(TcmOverflowError, match=r"no tile fits; release scratch"):
        run(kernel, (256, 256), (256, 64), (256, 64), size_kib=1)


# -- the dataflow of a call ------------------------------------------------------------


@pytest.mark.parametrize("given", ["WS", "", "rs", 3])
def test_a_dataflow_that_there_is_not_is_refused(run, given):
    def by_dot(x_ptr, y_ptr, tl):
        x = tl.load(x_ptr, (8, 8))
        tl.dot(x, x, dataflow=given)

    def by_composite(x_ptr, y_ptr, tl):
        x = tl.ref(x_ptr, (8, 8))
        tl.composite(a=x, b=x, out_ptr=y_ptr, dataflow=given)

    for kernel in (by_dot, by_composite):
        with pytest.raises(KernelError, match="must be one of ws, os, is"):
            run(kernel, (8, 8), (8, 8))


def test_an_elementwise_composite_has_no_dataflow(run):
    def kernel(x_ptr, y_ptr, tl):
        tl.composite("neg", tl.ref(x_ptr, (8, 8)), out_ptr=y_ptr, dataflow="os")

    with pytest.raises(KernelError, match="only a gemm has a dataflow"):
        run(kernel, (8, 8), (8, 8))


def test_a_dataflow_is_recorded_where_it_was_given(run):
    def kernel(x_ptr, y_ptr, tl):
        x = tl.load(x_ptr, (8, 8))
        tl.dot(x, x, dataflow="is")
        tl.dot(x, x)
        tl.composite(a=x, b=x, out_ptr=y_ptr, dataflow="os")

    log = run(kernel, (8, 8), (8, 8)).log
    products = [r for r in log if r.op_kind == "gemm"]
    assert [r.params.get("dataflow") for r in products] == ["is", None, "os"]
