"""The file that says how far a replay is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.replay.progress_file import ProgressFile
from coldstream.replay.request import ReplayRequest
from coldstream.units import Offset
from tests.support.segments import STREAM

SOURCE = ReplayRequest(STREAM, Offset(5), Offset(100))


@pytest.fixture
def file(tmp_path: Path) -> ProgressFile:
    return ProgressFile(tmp_path / "progress", SOURCE, "größe")


def test_nothing_is_done_before_the_first_time(file: ProgressFile) -> None:
    assert file.read() == 5


def test_what_was_written_is_read_also_for_a_later_end(file: ProgressFile) -> None:
    file.write(Offset(40))
    file.write(Offset(50))
    assert file.read() == replace(file, request=replace(SOURCE, end=Offset(200))).read() == 50
    assert [path.name for path in file.path.parent.iterdir()] == ["progress"]


@pytest.mark.parametrize(
    "change", [{"target": "other"}, {"request": ReplayRequest(STREAM, Offset(6), Offset(100))}], ids=["target", "start"]
)
def test_another_replay_does_not_go_on_from_it(file: ProgressFile, change: dict[str, object]) -> None:
    file.write(Offset(40))
    with pytest.raises(InvalidSettingError, match="another replay"):
        replace(file, **change).read()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"done_to": null}', '{"done_to": "x"}', "\\xff"])
def test_what_is_no_such_file_is_refused(file: ProgressFile, text: str) -> None:
    file.path.write_text(text)
    with pytest.raises(InvalidSettingError):
        file.read()


def test_a_file_that_cannot_be_written_is_told(file: ProgressFile) -> None:
    with pytest.raises(InvalidSettingError, match="cannot be written"):
        replace(file, path=file.path / "below" / "nothing").write(Offset(6))
