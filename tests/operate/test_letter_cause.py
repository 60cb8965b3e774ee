"""Why an event is a dead letter: what the event says, and what the archive holds by now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, source_of
from coldstream.archive.events import detail_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.cluster import cluster
from coldstream.operate.letter_cause import LetterAction, LetterCause, cause_of
from coldstream.operate.message_queue import QueueMessage
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MIB, Offset, TimestampMs
from tests.support.segments import STREAM, write_stream

KEYS = Keys("here/")


class Letters:
    """An archive in memory with one staged segment, of which nothing is archived."""

    def __init__(self, directory: Path) -> None:
        self.table, self.objects = MemoryTable(), MemoryObjects()
        write_stream(directory, chunks=150)
        self.rolled = stage(find_rolled(directory)[0], STREAM, self.objects, KEYS)

    def upload(self) -> None:
        Uploader(self.table, self.objects, KEYS, fragment_bytes=MIB).upload(self.rolled)

    def cause(self, event: SegmentRolled | SegmentLost, refusal: str | None = None) -> LetterCause:
        kind = DETAIL_TYPE if isinstance(event, SegmentRolled) else LOST_DETAIL_TYPE
        body = {"source": source_of(event.cluster), "detail-type": kind, "detail": json.loads(detail_of(event))}
        return self.cause_of_body(json.dumps(body), refusal)

    def cause_of_body(self, body: str, refusal: str | None = None) -> LetterCause:
        message = QueueMessage("id", "receipt", body, TimestampMs(0), 1, refusal)
        return cause_of(message, self.table, self.objects, KEYS)


@pytest.fixture
def letters(tmp_path: Path) -> Letters:
    return Letters(tmp_path)


def test_what_is_staged_and_not_archived_is_sent_back(letters: Letters) -> None:
    cause = letters.cause(letters.rolled)
    assert (cause.action, cause.stream) == (LetterAction.REDRIVE, STREAM)
    assert (cause.first_offset, cause.next_offset) == (letters.rolled.first_offset, letters.rolled.next_offset)
    assert "log says why" in cause.why


def test_what_eventbridge_could_not_deliver_says_so(letters: Letters) -> None:
    cause = letters.cause(letters.rolled, "NO_PERMISSIONS: not authorized")
    assert cause.action is LetterAction.REDRIVE
    assert "NO_PERMISSIONS" in cause.why


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"source": "coldstream.agent", "detail-type": "Other"}'])
def test_what_breaks_the_schema_is_dropped_and_says_where(letters: Letters, body: str) -> None:
    cause = letters.cause_of_body(body)
    assert (cause.action, cause.stream) == (LetterAction.DISCARD, None)
    assert "breaks its schema" in cause.why


def test_what_was_archived_since_is_dropped(letters: Letters) -> None:
    letters.upload()
    cause = letters.cause(letters.rolled)
    assert cause.action is LetterAction.DISCARD
    assert "archived since" in cause.why


def test_a_copy_of_what_is_archived_is_still_to_be_compared(letters: Letters, tmp_path: Path) -> None:
    letters.upload()
    stage(find_rolled(tmp_path)[0], STREAM, letters.objects, KEYS)
    cause = letters.cause(letters.rolled)
    assert cause.action is LetterAction.REDRIVE
    assert "still to be compared" in cause.why


def test_a_segment_that_is_not_staged_any_more_is_dropped(letters: Letters) -> None:
    letters.objects.delete(letters.rolled.staged_key)
    cause = letters.cause(letters.rolled)
    assert cause.action is LetterAction.DISCARD
    assert "announces it again" in cause.why


def test_an_event_of_another_copy_is_dropped(letters: Letters) -> None:
    cause = letters.cause(replace(letters.rolled, etag='"another"'))
    assert cause.action is LetterAction.DISCARD
    assert "another copy" in cause.why


def test_an_event_of_another_archive_is_dropped(letters: Letters) -> None:
    cause = letters.cause(replace(letters.rolled, bucket="elsewhere"))
    assert cause.action is LetterAction.DISCARD
    assert "elsewhere" in cause.why


def test_what_another_cluster_announced_is_dropped(letters: Letters) -> None:
    letters.table.bind_cluster(STREAM.vhost, STREAM.name, cluster("north"))
    cause = letters.cause(letters.rolled)
    assert cause.action is LetterAction.DISCARD
    assert "'north'" in cause.why


def test_a_loss_is_sent_back(letters: Letters) -> None:
    lost = SegmentLost(STREAM, Offset(0), Offset(40), "the disk was full")
    assert letters.cause(lost).action is LetterAction.REDRIVE
