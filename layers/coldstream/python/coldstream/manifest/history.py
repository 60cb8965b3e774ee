"""One history: what a stream's leaders wrote, one after the other. Two copies of offsets may be of two of them.

Osiris replicates as Raft does. Epochs never fall along a log, so an entry whose neighbour before it has a later epoch,
or whose neighbour behind it has an earlier one, is of another log, however well their offsets fit.
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
    """Raise ContradictionError when epochs fall from the entry's neighbours to it, or from it to them.

    `tail_epoch` is what is known of the neighbour before, where that is not read. Of whoever comes later only user
    chunks count: where segments are rebuilt from deliveries, tracking chunks have the epoch of the next user chunk.
    """
    earlier = before.epoch if before is not None else tail_epoch
    first = first_epoch(entry)
    if earlier is not None and first is not None and first < earlier:
        raise ContradictionError(entry.key, entry.first_offset, f"epoch {first} after epoch {earlier}")
    if after is not None:
        check_epoch_before(entry.key, entry.first_offset, entry.epoch, after)


def check_epoch_before(source: str, offset: int, epoch: Epoch, after: FragmentEntry) -> None:
    """Raise ContradictionError, naming `source` and `offset`, when `epoch` is later than that of an entry behind it."""
    following = first_epoch(after)
    if following is not None and following < epoch:
        raise ContradictionError(source, offset, f"epoch {epoch} before epoch {following}, in {after.key}")


def first_epoch(entry: FragmentEntry) -> Epoch | None:
    """Return the epoch of the first user chunk; in entries of earlier releases one that it cannot be later than."""
    if entry.last_user_chunk is None:
        return None
    return entry.epoch if entry.first_epoch is None else entry.first_epoch
