"""Schedules as short texts: which actor makes how many steps, and what befalls it at the last of them.

    upload+delete/0c0l0r:a3b2!a        3 steps of the upload; 2 of the deletion, which dies after the second
    upload+delete/0c1l0rh:a3?b%1       the answer to the upload's third is lost; the deletion sees half of a change
    cut+sweep/0c0l0r1d1s:a2@b5^%1      the truncation finds its host's clock stepped; the second of several ways in
                                       which only some of the objects go that the sweep deletes

An actor that died is started again by its next step. What a schedule leaves open is not played.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

_STEP = re.compile(r"([a-z])(\d*)([!?~^@]?)(?:%(\d+))?")


class Fate(IntEnum):
    """What befalls an actor at a request."""

    GOES_ON = 0
    DIES = 1
    HEARS_NOTHING = 2
    IS_REFUSED = 3
    DOES_A_PART = 4
    CLOCK_STEPPED = 5


SIGNS = {
    Fate.GOES_ON: "",
    Fate.DIES: "!",
    Fate.HEARS_NOTHING: "?",
    Fate.IS_REFUSED: "~",
    Fate.DOES_A_PART: "^",
    Fate.CLOCK_STEPPED: "@",
}
_FATES = {sign: fate for fate, sign in SIGNS.items()}


class Move(NamedTuple):
    """One request of an actor; `outcome` is which of several, as if it saw half of a change."""

    actor: int
    fate: Fate = Fate.GOES_ON
    outcome: int = 0

    @property
    def sign(self) -> str:
        """How its end is written."""
        return f"{SIGNS[self.fate]}{f'%{self.outcome}' if self.outcome else ''}"


def text_of(moves: Iterable[Move]) -> str:
    """Write moves as a text."""
    told = []
    for actor, some in groupby(moves, key=lambda move: move.actor):
        count = 0
        for move in some:
            count += 1
            if move.sign:
                told.append(_step(actor, count, move.sign))
                count = 0
        if count:
            told.append(_step(actor, count, ""))
    return "".join(told)


def moves_of(text: str) -> Iterator[Move]:
    """Read moves from a text. Raises ValueError."""
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"no step at {text[at:]!r}")
        at = found.end()
        actor, count = ord(found[1]) - ord("a"), int(found[2] or "1")
        yield from (Move(actor) for _ in range(count - 1))
        yield Move(actor, _FATES[found[3]], int(found[4] or "0"))


def _step(actor: int, count: int, sign: str) -> str:
    return f"{chr(ord('a') + actor)}{count if count > 1 else ''}{sign}"
