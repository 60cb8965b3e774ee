"""A progress bar on standard error, by rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """How many of something a second."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        super().__init__()

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s")


@contextmanager
def bar(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; it calls what it is given with each advance."""
    counts: list[ProgressColumn] = [MofNCompleteColumn(), _Rate(unit)]
    if unit == "bytes":
        counts = [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    columns = [TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda advance: shown.advance(task, advance)
