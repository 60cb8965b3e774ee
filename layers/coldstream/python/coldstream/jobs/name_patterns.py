"""Names of streams as a job gives them: as they are, or as patterns with * (any text) and ? (any character)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

WILD = frozenset("*?")


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """Which names are meant: those in `names`, and those that one of `patterns` matches whole."""

    names: tuple[str, ...]
    patterns: tuple[str, ...]

    @classmethod
    def of(cls, given: Sequence[str]) -> Self:
        """Tell names and patterns apart; what is given twice counts once."""
        once = dict.fromkeys(given)
        return cls(
            tuple(text for text in once if not WILD & set(text)), tuple(text for text in once if WILD & set(text))
        )

    def pattern_of(self, name: str) -> str | None:
        """Return the first pattern that matches a name, None if none does."""
        return next((pattern for pattern in self.patterns if is_match(pattern, name)), None)


def is_match(pattern: str, name: str) -> bool:
    """Tell whether a pattern matches all of a name. Cost: the product of their lengths at most, whatever they are.

    Not by a regular expression: with many stars, that would try every way to share the name among them.
    """
    at = position = 0
    star, resumed = -1, 0  # the last star, and where in the name what follows it was tried
    while position < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resumed = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", name[position]}:
            at += 1
            position += 1
        elif star >= 0:
            resumed += 1
            at, position = star + 1, resumed
        else:
            return False
    return not pattern[at:].strip("*")
