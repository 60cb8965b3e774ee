"""Progress on standard error: how far, how fast, how much time is left. Silent if that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

Unit = Literal["bytes", "fragments", "messages", "objects", "segments", "streams"]


@contextmanager
def progress(
    activity: str, total: int | None, unit: Unit, *, beside_data: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show progress while the block runs. The block calls the yielded function with each advance.

    `total` is None if it is not known. With `beside_data` the command writes data to standard output meanwhile: if both
    are the terminal, the data is progress enough, and a bar would be drawn through it.
    """
    if not sys.stderr.isatty() or (beside_data and sys.stdout.isatty()):
        yield lambda _: None
        return
    # rich takes as long to import as the rest of the command line: only a bar is worth that.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), *_count_columns(unit), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(activity, total=total)
        yield lambda advance: bar.advance(task, advance)


def _count_columns(unit: Unit) -> list[ProgressColumn]:
    """Return the columns that show how many of something there were, and how many a second."""
    from rich.progress import DownloadColumn, MofNCompleteColumn, ProgressColumn, Task, TransferSpeedColumn
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} {unit}/s")

    if unit == "bytes":
        return [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    return [MofNCompleteColumn(), RateColumn()]
