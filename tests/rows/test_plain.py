"""Slices into batches, in both encodings."""

from __future__ import annotations

import pytest

from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Policy, plan_groups
from coldstream.rows.batches import batches
from coldstream.serve.scan import Slice, plan_scan, read_slice
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.amqp_samples import encode
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.compaction import Compaction

SIZES = (0, 1, 246, 247, 255, 256, 300)


class Bodies(ChunkArchive):
    """Messages of sizes around where the head of a data section changes; `even` gives all of them one size."""

    even: int | None = None

    def message(self, offset: int) -> bytes:
        # The client leaves an empty body out.
        return encode(body=self.body(offset)) or bytes.fromhex("005375a000")

    def body(self, offset: int) -> bytes:
        size = SIZES[offset % len(SIZES)] if self.even is None else self.even
        return bytes((offset % 251,)) * size


@pytest.mark.parametrize("even", [None, *SIZES])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_values_are_the_bodies_whatever_their_sizes_and_the_encoding(
    encoding: Encoding, even: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 500)
    archive = Bodies()
    archive.even = even
    for number in range(3):
        archive.add(number * 20, steady(10, number, number))
    compaction = Compaction(archive)
    group = next(iter(plan_groups(compaction.log(), Policy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, encoding))))
    for _ in compaction.replace(group, compaction.store(group, encoding)):
        pass
    for start, end in ((0, 60), (3, 57), (15, 16)):
        steps = plan_scan(archive.table, STREAM, Offset(start), Offset(end))
        found = [
            (row["offset"], row["value"])
            for part in steps
            if isinstance(part, Slice)
            for batch in batches(
                read_slice(archive.objects, part),
                "orders",
                ("offset", "value"),
                start=part.start,
                end=part.end,
                source=part.key,
            )
            for row in batch.to_pylist()
        ]
        assert found == [(offset, archive.body(offset)) for offset in range(start, end)]
