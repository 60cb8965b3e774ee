"""A bounded window of calls in flight, whose results come out in the order of the calls.

Everything that reads or writes ahead uses it: pages, ranges, parts, blocks. The bound is on the calls and on their
weight, usually bytes, so that memory stays bounded whatever the sizes are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")


class Window(Generic[Result]):
    """Calls that run in `executor`, at most `max_calls` at once and, from the second on, `max_weight` together.

    None as a bound is no bound. One call is always admitted, whatever its weight: a window that nothing fits into would
    wait for ever.
    """

    def __init__(self, executor: Executor, *, max_calls: int | None = None, max_weight: int | None = None) -> None:
        self._executor = executor
        self._max_calls = max_calls
        self._max_weight = max_weight
        self._weight = 0
        self._calls: deque[tuple[int, Future[Result]]] = deque()

    def __len__(self) -> int:
        """Count the calls whose results were not taken yet."""
        return len(self._calls)

    def has_room(self, weight: int = 0) -> bool:
        """Tell whether a call of this weight is admitted now; if not, take a result first."""
        if not self._calls:
            return True
        is_light = self._max_weight is None or self._weight + weight <= self._max_weight
        return is_light and (self._max_calls is None or len(self._calls) < self._max_calls)

    def submit(self, call: Callable[[], Result], weight: int = 0) -> None:
        """Start a call. The caller asks `has_room` first: what to do with the results is its business."""
        self._calls.append((weight, self._executor.submit(call)))
        # Only now: if the executor refuses the call, the window is as it was.
        self._weight += weight

    def take(self) -> Result:
        """Wait for the oldest call; return its result, or raise what it raised."""
        # Removed before the wait: a call that raises is over, too, and must free its weight.
        weight, future = self._calls.popleft()
        self._weight -= weight
        return future.result()

    def cancel(self) -> None:
        """Drop all calls. Those that run go on to their end, and nobody takes their results."""
        for _, future in self._calls:
            future.cancel()
        self._calls.clear()
        self._weight = 0


def map_ahead(
    executor: Executor,
    call: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    max_calls: int,
    max_weight: int | None = None,
    weigh: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """Yield `call(item)` for each item, in order, with `max_calls` of them in flight, of `max_weight` by `weigh`.

    Unlike `Executor.map` it takes items only as there is room, so that `items` may be without end.
    """
    window: Window[Result] = Window(executor, max_calls=max_calls, max_weight=max_weight)
    try:
        for item in items:
            weight = weigh(item)
            while not window.has_room(weight):
                yield window.take()
            # The default binds this item: the call may run when the loop is at a later one.
            window.submit(lambda item=item: call(item), weight)  # type: ignore[misc]  # mypy infers no such lambda
        while len(window):
            yield window.take()
    finally:
        window.cancel()
