"""The option `--offsets`, whose text `terminal.ranges` reads."""

from __future__ import annotations

from typing import Annotated

import typer

Offsets = Annotated[
    str,
    typer.Option(
        "--offsets",
        help="Offsets A:B, from A up to, not including, B. Without A from the first on, without B without end.",
        metavar="A:B",
    ),
]
