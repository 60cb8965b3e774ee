"""Chunks into batches: those of plain messages, which are not decoded one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.format.chunk import iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import CompactionPolicy, plan_groups
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.rows import plain
from coldstream.rows.batches import batches
from coldstream.rows.plain import ByteSpan
from coldstream.units import MAX_TIMESTAMP_MS, ChunkId, Epoch, Offset, TimestampMs
from tests.support.amqp_samples import encode
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.compaction import Compaction
from tests.support.rows import TIME, as_rows

pytestmark = pytest.mark.usefixtures("decoding")

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
    monkeypatch.delattr("coldstream.rows.python_batches.messages")  # nothing is read message by message
    archive = Bodies()
    archive.even = even
    for number in range(3):
        archive.add(number * 20, steady(10, number, number))
    compaction = Compaction(archive)
    group = next(
        iter(plan_groups(compaction.log(), CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, encoding)))
    )
    for _ in compaction.replace(group, compaction.store(group, encoding)):
        pass
    for start, end in ((0, 60), (3, 57), (15, 16)):
        steps = plan_scan(archive.table, STREAM, Offset(start), Offset(end))
        found = [
            (row["offset"], row["value"])
            for part in steps
            if isinstance(part, ScanSlice)
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


def test_a_body_that_holds_an_entry_is_a_value_like_any_other() -> None:
    message = encode(body=b"x" * 7)
    inside = len(message).to_bytes(4) + message
    for bodies in ([inside], [b"a", inside, b"b"], [inside[:-1], b"a" * 300, inside * 50, b"\x00Su\xa0" * 9]):
        found = as_rows(*(encode(body=body) for body in bodies))
        assert found.column("value").to_pylist() == bodies
        assert found.column("offset").to_pylist() == list(range(40, 40 + len(bodies)))


@given(
    st.lists(st.binary(max_size=300) | st.sampled_from((b"\x00S", b"\x00Su\xa0\x00", b"S")), min_size=1, max_size=40)
)
def test_values_are_what_was_published(bodies: list[bytes]) -> None:
    section = b"\x00Su\xa0"
    messages = [section + bytes((len(body),)) + body if len(body) < 256 else encode(body=body) for body in bodies]
    assert as_rows(*messages).column("value").to_pylist() == bodies


def test_chunks_of_both_kinds_keep_their_order() -> None:
    plain, other = encode(body=b"plain"), encode(body=b"other", application_properties={"k": "v"})
    data = b""
    for chunk_id, published in ((0, [plain] * 3), (3, [other] * 2), (5, [plain, other]), (7, [plain])):
        _, chunk = make_chunk(published, chunk_id=ChunkId(chunk_id), timestamp=TimestampMs(TIME), epoch=Epoch(1))
        data += chunk
    found = [
        row
        for batch in batches(
            iter_chunks(data, source="test"), "orders", ("offset", "value"), start=Offset(1), end=Offset(8), source="x"
        )
        for row in batch.to_pylist()
    ]
    values = [b"plain"] * 3 + [b"other"] * 2 + [b"plain", b"other", b"plain"]
    assert found == [{"offset": offset, "value": values[offset]} for offset in range(1, 8)]


def test_a_chunk_is_looked_through_by_itself_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are written chunk by chunk, of slices with thousands: what lies around one is not looked at."""
    data, spans = b"\x00S" * 7, []
    for count in (3, 1, 4):
        header, chunk = make_chunk(
            [encode(body=b"body" * count)] * count, chunk_id=ChunkId(0), timestamp=TimestampMs(TIME), epoch=Epoch(1)
        )
        start = len(data) + len(chunk) - header.data_bytes - header.trailer_bytes
        spans.append(ByteSpan(start, start + header.data_bytes, count))
        data += chunk
    looked_at = []
    find = plain._find
    monkeypatch.setattr(plain, "_find", lambda *asked: looked_at.append(asked[1:]) or find(*asked))
    together = plain.find_values(data, spans)
    for number, span in enumerate(spans):
        (alone,) = plain.find_values(data, [span])
        assert [data[begin:end] for begin, end in alone] == [b"body" * span.entries] * span.entries
        assert (alone == together[number]).all()
    assert looked_at[1:] == [(span.start, span.end) for span in spans]
    assert plain.find_values(data, []) == []
