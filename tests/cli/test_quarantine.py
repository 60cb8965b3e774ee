"""`coldstream quarantine` on a local stack, whose function puts a damaged segment aside."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.stream import StreamId, stream_from_directory
from tests.cli.conftest import Archive, Cli, write_segments

_numbers = count(1)


@dataclass(frozen=True)
class Aside:
    """A segment in quarantine, and a sound copy of it."""

    announcer: Announcer
    stream: StreamId
    path: Path
    sound: bytes
    first_offset: int

    @property
    def copies(self) -> list[str]:
        return [
            key
            for key in self.announcer.objects.keys(f"some/prefix/quarantine/{self.stream.incarnation}/")
            if not key.endswith(".json")
        ]

    def mend(self, archive: Archive) -> None:
        """Have a sound copy archived."""
        self.path.write_bytes(self.sound)
        segments = find_rolled(self.path.parent)
        self.announcer.announce(self.stream, segments, lambda _: None)
        archive.stack.wait_idle(60)


@pytest.fixture
def aside(archive: Archive, tmp_path: Path) -> Aside:
    directory = tmp_path / f"__aside{next(_numbers)}_1763700000000000003"
    write_segments(directory)
    segments = find_rolled(directory)
    path, sound = segments[1].path, segments[1].path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 0xFF]))
    announcer, stream = Announcer.from_environment(), stream_from_directory(directory.name)
    announcer.announce(stream, segments, lambda _: None)
    archive.stack.wait_idle(60)
    return Aside(announcer, stream, path, sound, segments[1].first_offset)


def test_a_segment_is_listed_shown_tried_again_and_discarded(aside: Aside, archive: Archive, cli: Cli) -> None:
    name, offset = aside.stream.name, str(aside.first_offset)
    (found,) = cli("quarantine", "list", name, "-o", "json").json
    assert (found["first_offset"], found["is_archived"]) == (aside.first_offset, False)
    assert name in cli("quarantine", "list").out
    shown = cli("quarantine", "show", name, offset).out
    assert "CRC-32" in shown
    assert aside.copies[0] in shown
    refused = cli("quarantine", "release", name, offset, "--yes")
    assert (refused.code, "retry the segment" in refused.err) == (2, True)
    again = cli("quarantine", "retry", name, offset)
    assert (again.code, again.out.endswith(": quarantined again\n")) == (5, True)
    assert len(aside.copies) == 1  # not the copy of the first attempt, too
    would = cli("quarantine", "discard", name, offset, "--reason", "beyond repair", "--dry-run")
    assert "1 object of" in would.out
    assert cli("quarantine", "discard", name, offset, "--reason", "beyond repair").code == 2
    done = cli("quarantine", "discard", name, offset, "--reason", "beyond repair", "--yes", "--by", "me")
    assert done.code == 0
    assert aside.copies == []
    assert "discarded from quarantine: beyond repair" in cli("describe", name).out


def test_what_was_archived_from_a_sound_copy_is_released(aside: Aside, archive: Archive, cli: Cli) -> None:
    name, offset = aside.stream.name, str(aside.first_offset)
    aside.mend(archive)
    assert cli("quarantine", "list", name, "-o", "json").json[0]["is_archived"]
    assert cli("quarantine", "release", name, offset, "--yes").code == 0
    assert len(aside.copies) == 1
    assert "nothing is in quarantine" in cli("quarantine", "list", name).err
    assert cli("quarantine", "show", name, offset).code == 3
