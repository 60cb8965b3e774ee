"""Histories: the chunks that a stream's leaders wrote, one after the other. Two copies of offsets may be of two.

Osiris replicates as Raft does, and epochs never fall along a log. So an entry is of another log if the entry before it
has a later epoch, or the entry after it an earlier one, however well their offsets fit.
"""

from __future__ import annotations

from coldstream.errors import ContradictionError
from coldstream.manifest.entry import FragmentEntry
from coldstream.units import Epoch


def check_epochs(
    entry: FragmentEntry,
    before: FragmentEntry | None,
    after: FragmentEntry | None,
    *,
    tail_epoch: Epoch | None = None,
) -> None:
    """Raise ContradictionError if epochs fall from the entry before to this one, or from this one to the entry after.

    `tail_epoch` is the epoch of the entry before, for a caller that did not read that entry. Of the later entry only
    user chunks count: in segments rebuilt from deliveries, tracking chunks have the epoch of the next user chunk.
    """
    earlier = before.epoch if before is not None else tail_epoch
    first = first_epoch(entry)
    if earlier is not None and first is not None and first < earlier:
        raise ContradictionError(entry.key, entry.first_offset, f"epoch {first} after epoch {earlier}")
    if after is not None:
        check_epoch_before(entry.key, entry.first_offset, entry.epoch, after)


def check_epoch_before(source: str, offset: int, epoch: Epoch, after: FragmentEntry) -> None:
    """Raise ContradictionError, naming `source` and `offset`, if `epoch` is later than the first one of `after`."""
    following = first_epoch(after)
    if following is not None and following < epoch:
        raise ContradictionError(source, offset, f"epoch {epoch} before epoch {following}, in {after.key}")


def first_epoch(entry: FragmentEntry) -> Epoch | None:
    """Return the epoch of the first user chunk; for entries of earlier releases, an upper bound of it."""
    if entry.last_user_chunk is None:
        return None
    return entry.epoch if entry.first_epoch is None else entry.first_epoch
