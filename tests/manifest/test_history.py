"""Epochs of one history: they never fall along a log, counted by user chunks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import ContradictionError
from coldstream.manifest.entry import FragmentEntry, LastUserChunk
from coldstream.manifest.history import check_epochs, first_epoch
from coldstream.units import ChunkId, Epoch
from tests.manifest.world import AT, entry


def of_epochs(first: int, *, epoch: int, first_epoch: int | None = None) -> FragmentEntry:
    """Make an entry of ten offsets with user chunks."""
    return replace(
        entry(first, first + 10),
        epoch=Epoch(epoch),
        first_epoch=None if first_epoch is None else Epoch(first_epoch),
        last_user_chunk=LastUserChunk(ChunkId(first), 8, AT),
    )


def test_the_first_epoch_is_that_of_user_chunks_and_at_most_the_last_one() -> None:
    assert first_epoch(entry(0, 10)) is None
    assert first_epoch(of_epochs(0, epoch=5)) == 5
    assert first_epoch(of_epochs(0, epoch=5, first_epoch=3)) == 3


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_epoch_is_none_before_that_of_the_entry_before_it(epoch: int) -> None:
    before, new = of_epochs(0, epoch=4), of_epochs(10, epoch=9, first_epoch=epoch)
    for found, tail_epoch in ((before, None), (None, Epoch(4))):
        if epoch == 4:
            check_epochs(new, found, None, tail_epoch=tail_epoch)
        else:
            with pytest.raises(ContradictionError, match="epoch 3 after epoch 4"):
                check_epochs(new, found, None, tail_epoch=tail_epoch)


@pytest.mark.parametrize("epoch", [8, 9])
def test_an_epoch_is_none_after_the_first_one_of_the_entry_after_it(epoch: int) -> None:
    new, after = of_epochs(0, epoch=9), of_epochs(10, epoch=12, first_epoch=epoch)
    if epoch == 9:
        check_epochs(new, None, after)
    else:
        with pytest.raises(ContradictionError, match="epoch 9 before epoch 8"):
            check_epochs(new, None, after)
