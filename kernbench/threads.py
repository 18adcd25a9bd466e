"""What every entry point does before numpy is imported."""

import os


def use_one_blas_thread() -> None:
    """Let OpenBLAS compute in the thread that calls it, unless the user says otherwise.

    OpenBLAS reads the variable when numpy is imported. Its own threads gain nothing on
    the small matrices of tiles, and stand in the way of the debugger's: they made its
    ``outputs`` take 36 ms instead of 4.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
