"""The order of arguments: from the one that people type to the one that the parser wants.

The parser wants the options of all commands, the command, then its arguments and options. People also write an option
before the command that it belongs to, an option of all commands at the end, and "-1h" for a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

ANYWHERE = ("--debug", "--version")
"""The options of all commands, which may stand anywhere."""

_AGO = re.compile(r"-[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)")


def arrange(args: Sequence[str], commands: Collection[str], takes_value: Callable[[str], bool | None]) -> list[str]:
    """Return arguments in the parser's order. What follows "--" stays as it is.

    `takes_value` tells it of an option of the commands, and None of any other. "-1h" becomes "now-1h", which the parser
    cannot mistake for an option.
    """
    end = args.index("--") if "--" in args else len(args)
    given = ["now" + arg if _AGO.fullmatch(arg) else arg for arg in args[:end] if arg not in ANYWHERE]
    front = [arg for arg in args[:end] if arg in ANYWHERE]
    moved, at = [], 0
    while at < len(given) and given[at] not in commands:
        name, equals, _ = given[at].partition("=")
        takes = takes_value(name)
        if takes is None:
            # Whether an unknown option takes a value cannot be known: the parser shall complain where the error is.
            break
        parts = 2 if takes and not equals else 1
        moved += given[at : at + parts]
        at += parts
    return [*front, *given[at : at + 1], *moved, *given[at + 1 :], *args[end:]]
