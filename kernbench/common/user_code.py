"""What code of users may do: kernels, benches, models, plugins.

It raises anything, with a text of any length or none at all, and may be a generator.
Only Ctrl-C passes it: whoever calls it lets KeyboardInterrupt through, and makes of all
else that is raised an error of ours with the place where it came from.
"""

import os
import sys
import threading
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from kernbench import errors
from kernbench.common.from_triton import hint
from kernbench.errors import KernbenchError

MOST_TEXT = 16_000
"""So many characters of what an error says are shown; of a longer text the first half.

So it is not cut again where a place is put before it.
"""


def text_of(error: BaseException) -> str:
    """What an error says, cut if it has more than MOST_TEXT characters."""
    try:
        # a user's __str__ may give a str of the user's own, which is made a plain one
        text = "".join([str(error)])
    except KeyboardInterrupt:
        raise
    except BaseException as why:
        return f"(it cannot be shown: its __str__ raised {type(why).__name__})"
    if len(text) > MOST_TEXT:
        return f"{text[: MOST_TEXT // 2]}… ({len(text):,} characters)"
    return text


def described(error: BaseException) -> str:
    """The type of an error, and what it says."""
    return f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")


def located(
    where: str, error: BaseException, kind: type[KernbenchError]
) -> KernbenchError:
    """What a user's code raised, as an error of ours that begins with ``where``.

    It is of its own class if that is a ``kind`` of our tree, of the nearest above it if
    a user derived it, else a ``kind`` that names its class, and what to write instead
    if it is a habit of Triton's.
    """
    for ours in type(error).__mro__:
        if ours in _TREE and issubclass(ours, kind):
            return ours(f"{where}: {text_of(error)}")
    said = described(error)
    return kind(f"{where}: {said}{hint(said)}")


_TREE = frozenset(value for value in vars(errors).values() if isinstance(value, type))


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call a function for what it does.

    TypeError if it is a generator or a coroutine: nothing of it would have run.
    """
    result = function(*args, **kwargs)
    if isinstance(result, CoroutineType):
        result.close()  # else Python warns that nobody awaited it
    if isinstance(result, GeneratorType | CoroutineType | AsyncGeneratorType):
        raise TypeError(
            "it is a generator or a coroutine, so nothing of it ran; "
            "write it without yield and async"
        )


def end_if_forked(pid: int) -> None:
    """End this process if users' code forked it from ``pid``: that one alone simulates,
    and records.
    """
    if os.getpid() != pid:
        os._exit(1)


def end_beside_threads(code: int) -> None:
    """End this process, if a thread of users' code would keep it from ending."""
    main = threading.main_thread()
    if any(not (thread is main or thread.daemon) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
