"""One kernel on one PE, without the garbage collections of ``GraphEngine.run``."""

from types import SimpleNamespace

import pytest

from kernbench.runtime_api.torch import Torch
from kernbench.sim_engine.data_executor import DataExecutor
from kernbench.sim_engine.engine import GraphEngine
from kernbench.sim_engine.memory_store import MemoryStore


@pytest.fixture(scope="session")
def run_kernel(one_cube):
    """run_kernel(kernel, *arrays): launches kernel(*pointers).

    ``.store`` is memory after Phase 2, ``.made`` what the kernel returns.
    """

    def run_kernel(kernel, *arrays, warn_memory=False, recorder=None, before=None):
        engine = GraphEngine(one_cube, warn_memory=warn_memory, recorder=recorder)
        torch = Torch(engine)
        made = []

        def whole(*args, tl):
            made.append(kernel(*args, tl=tl))

        whole.__code__ = whole.__code__.replace(co_filename=kernel.__code__.co_filename)
        tensors = [torch.tensor(array) for array in arrays]
        if before is not None:
            tensors += before(torch)
        torch.launch("k", whole, *tensors)
        engine.drain()
        executor = DataExecutor(engine.op_log, MemoryStore(fill=engine.store.fill))
        executor.run()
        return SimpleNamespace(
            made=made[0], store=executor.store, engine=engine, executor=executor
        )

    return run_kernel
