"""Progress on standard error: how far, how fast, how long still. Silent where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal


def progress(
    what: str, total: int | None, unit: Literal["bytes", "messages", "segments"], *, beside_data: bool = False
) -> AbstractContextManager[Callable[[int], None]]:
    """Show progress while a block runs, which calls what it is given with each advance; `total` None is not known.

    With `beside_data` data goes to standard output meanwhile: if that is the terminal too, it is progress enough.
    """
    if not sys.stderr.isatty() or (beside_data and sys.stdout.isatty()):
        return nullcontext(lambda _: None)
    from coldstream.cli.bar import bar

    return bar(what, total, unit)
