"""`coldstream dead-letters` on a local stack, whose function refuses events until SQS gives them up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled
from coldstream.local.environment import client
from coldstream.manifest.stream import StreamId, stream_from_directory
from tests.cli.conftest import Archive, Cli, write_segments


@dataclass(frozen=True)
class Letter:
    """The event of a segment that was not staged any more when the function came for it."""

    announcer: Announcer
    stream: StreamId
    slice: SegmentSlice
    rolled: SegmentRolled

    @property
    def is_archived(self) -> bool:
        return self.announcer.is_covered(self.rolled, self.stream)


def empty(archive: Archive) -> None:
    """Throw away the letters of other tests, whose segments the function put aside."""
    archive.stack.wait_idle(60)  # what it still refuses would become a letter later
    sqs, url = client("sqs", archive.stack.environment), os.environ["COLDSTREAM_DEAD_LETTER_QUEUE"]
    while archive.stack.dead_letters():
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", ()):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.fixture
def letter(archive: Archive, tmp_path: Path, request: pytest.FixtureRequest) -> Letter:
    empty(archive)
    directory = tmp_path / f"__letter{len(request.node.name)}_1763700000000000002"
    write_segments(directory)
    announcer = Announcer.from_environment()
    stream, slice_ = stream_from_directory(directory.name), find_rolled(directory)[0]
    rolled = announcer.stage(slice_, stream)
    announcer.objects.delete(rolled.staged_key)
    announcer.put(rolled)
    archive.stack.wait_idle(60)
    assert archive.stack.dead_letters() == 1
    return Letter(announcer, stream, slice_, rolled)


def test_a_letter_is_looked_at_mended_and_sent_back(letter: Letter, archive: Archive, cli: Cli) -> None:
    (found,) = cli("dead-letters", "list", "-o", "json").json
    assert (found["name"], found["action"]) == (letter.stream.name, "discard")
    assert "staged copy is gone" in found["why"]
    assert letter.stream.name in cli("dead-letters", "show", found["id"][:8]).out
    left = cli("dead-letters", "redrive", "--all")
    assert left.out == "0 dead letters sent back\n"
    assert "left alone" in left.err
    letter.announcer.stage(letter.slice, letter.stream)
    assert cli("dead-letters", "list").out.splitlines()[1].split()[6] == "redrive"
    assert cli("dead-letters", "redrive", "--all", "--dry-run").out == "1 dead letter would be sent back\n"
    assert cli("dead-letters", "redrive", "--all").out == "1 dead letter sent back\n"
    archive.stack.wait_idle(60)
    assert letter.is_archived
    assert archive.stack.dead_letters() == 0
    assert "there are no dead letters" in cli("dead-letters", "list").err


def test_a_letter_without_use_is_dropped(letter: Letter, archive: Archive, cli: Cli) -> None:
    (found,) = cli("dead-letters", "list", "-o", "json").json
    assert cli("dead-letters", "discard", found["id"]).code == 2  # nobody said yes
    assert cli("dead-letters", "discard", found["id"], "--yes").out == "1 dead letter dropped\n"
    assert archive.stack.dead_letters() == 0


@pytest.mark.parametrize("command", ["redrive", "discard"])
def test_letters_are_named_or_all_are_meant(archive: Archive, cli: Cli, command: str) -> None:
    done = cli("dead-letters", command)
    assert done.code == 2
    assert "--all" in done.err
    assert cli("dead-letters", command, "01234567", "--all").code == 2
    assert cli("dead-letters", command, "0123").code == 2
    missing = cli("dead-letters", command, "01234567-89ab", *(["--yes"] if command == "discard" else []))
    assert (missing.code, "not there" in missing.err) == (3, True)


def test_a_queue_that_is_no_queue_is_named(archive: Archive, cli: Cli) -> None:
    done = cli("dead-letters", "list", "--queue", "letters")
    assert done.code == 2
    assert "COLDSTREAM_DEAD_LETTER_QUEUE" in done.err
