"""What a piece of code allocates, and nothing else: the threads of servers that other tests left running do as well."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def peak_bytes(prepare: Callable[..., Callable[[], object]], *arguments: object) -> int:
    """Return the most that what `prepare` returns has allocated at a time, in a process of its own.

    `prepare` is a function of a module, and is not measured; what it is given must be picklable. What is measured runs
    once before, so that nothing is counted that is made only once. Raises what either raises.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        return child.submit(_measure, prepare, arguments).result()


def _measure(prepare: Callable[..., Callable[[], object]], arguments: tuple[object, ...]) -> int:
    run = prepare(*arguments)
    run()
    tracemalloc.start()
    run()
    return tracemalloc.get_traced_memory()[1]
