"""A part of one stream's examination, so that several processes can share a long log.

opening = ScrubPart(OPENING)                                    the account is opened
ScrubPart(WALK, opening's account, after, until)                any number of these, side by side
ScrubPart(CLOSING, all their accounts as one)                   everything else, and the totals
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from coldstream.scrub.account import Account, Sums
from coldstream.scrub.position import STAGES, Stage
from coldstream.units import Offset

OPENING = (Stage.BEGIN,)
WALK = (Stage.LOG,)
CLOSING = tuple(stage for stage in STAGES if stage not in {*OPENING, *WALK})


@dataclass(frozen=True, slots=True)
class ScrubPart:
    """Some stages, in order; all by default.

    Of the log, these are the entries that end after `after`, and at or before `until`; None is the end of the log.
    """

    stages: tuple[Stage, ...] = STAGES
    account: Account | None = None
    after: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    until: Offset | None = None


def whole_account(opening: Account | None, walked: Iterable[Account | None]) -> Account | None:
    """Return the account of a log from those of its parts; None if one of them is not known."""
    sums = Sums()
    for one in walked:
        if one is None:
            return None
        sums += one.sums
    return None if opening is None else replace(opening, sums=sums)
