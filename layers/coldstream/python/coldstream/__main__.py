"""Run the command `coldstream`, also as `python -m coldstream`.

It starts where the command line is not installed, and then names the extra that brings it.
"""

from __future__ import annotations

import sys

from coldstream.terminal.exits import ExitCode
from coldstream.terminal.extras import missing_extra


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        from coldstream.cli.main import main as run  # noqa: PLC0415  it may be missing
    except ModuleNotFoundError as err:
        missing = missing_extra(err)
        if missing is None:
            raise
        sys.stderr.write(f"coldstream: {missing}\n")
        sys.exit(ExitCode.USAGE)
    run()


if __name__ == "__main__":
    main()
