"""What becomes of a subscription that meets a gap in the archive, by the stream's name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self

from coldstream.errors import InvalidSettingError


class GapAction(StrEnum):
    """What becomes of a subscription that meets offsets which neither broker nor archive has."""

    ERROR = "error"
    """It ends, as if the stream were not available. The log says which offsets are missing, and why."""
    SKIP = "skip"
    """It goes on after them. The log says so."""


@dataclass(frozen=True, slots=True)
class GapRules:
    """The first pattern that matches a stream's name decides; without one it is `otherwise`.

    Patterns are those of a shell: *, ? and [abc].
    """

    patterns: tuple[tuple[str, GapAction], ...] = ()
    otherwise: GapAction = GapAction.ERROR

    @classmethod
    def parse(cls, given: Iterable[str]) -> Self:
        """Read `error`, `skip` and PATTERN=error or skip; of those without a pattern, the last is for all others.

        Raises InvalidSettingError.
        """
        patterns, otherwise = [], GapAction.ERROR
        for text in given:
            pattern, equals, word = text.rpartition("=")
            try:
                action = GapAction(word)
            except ValueError as err:
                raise InvalidSettingError(
                    "--on-gap", f"{text[:80]!r} is not error, skip, PATTERN=error or PATTERN=skip"
                ) from err
            if not equals:
                otherwise = action
            elif not pattern:
                raise InvalidSettingError("--on-gap", f"{text[:80]!r} has no pattern")
            else:
                patterns.append((pattern, action))
        return cls(tuple(patterns), otherwise)

    def action(self, stream: str) -> GapAction:
        """Return what becomes of a subscription to this stream."""
        return next((action for pattern, action in self.patterns if fnmatchcase(stream, pattern)), self.otherwise)
