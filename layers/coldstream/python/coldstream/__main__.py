"""The command `coldstream`, also as `python -m coldstream`, also where the command line is not installed."""

from __future__ import annotations

import sys

from coldstream.console.extras import missing_extra

_USAGE = 2
"""`exits.ExitCode.USAGE`, which cannot be imported before there is a command line."""


def main() -> None:
    """Run the command line; without it, say how to install it."""
    try:
        from coldstream.cli.main import main as run  # noqa: PLC0415  what may be missing
    except ModuleNotFoundError as err:
        missing = missing_extra(err)
        if missing is None:
            raise
        sys.stderr.write(f"coldstream: {missing}\n")
        sys.exit(_USAGE)
    run()


if __name__ == "__main__":
    main()
