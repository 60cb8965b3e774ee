"""Arguments as people type them, put in the order that the parser wants.

A command line is options of all commands, a command, its arguments and its options. People also write an option before
the command that it belongs to, an option of all commands at the end, and "-1h" where a time is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

ANYWHERE = ("--debug", "--version")

_AGO = re.compile(r"-[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)")


def arranged(args: Sequence[str], commands: Collection[str], options: Mapping[str, bool]) -> list[str]:
    """Return arguments in order; what follows "--" stays as it is.

    `options` are those of commands, and whether each takes a value. "-1h" becomes "now-1h", which is no option.
    """
    end = args.index("--") if "--" in args else len(args)
    given = ["now" + arg if _AGO.fullmatch(arg) else arg for arg in args[:end] if arg not in ANYWHERE]
    front = [arg for arg in args[:end] if arg in ANYWHERE]
    moved, at = [], 0
    while at < len(given) and given[at] not in commands:
        name, equals, _ = given[at].partition("=")
        if name not in options:
            break
        parts = 2 if options[name] and not equals else 1
        moved += given[at : at + parts]
        at += parts
    return [*front, *given[at : at + 1], *moved, *given[at + 1 :], *args[end:]]
