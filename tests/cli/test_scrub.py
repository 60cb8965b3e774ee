"""`coldstream scrub` on an archive of the emulated AWS."""

from __future__ import annotations

import os
from typing import Any

import pytest

from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from tests.cli.conftest import Cli
from tests.support.small_fragments import ORDERS, OTHERS, PREFIX, SmallFragments


@pytest.fixture
def archived(archived: SmallFragments, s3_objects: S3Objects) -> SmallFragments:
    for stream in (ORDERS, OTHERS):
        ControlObjects(s3_objects, Keys(PREFIX)).write_stream(stream)
    return archived


def test_a_sound_archive_ends_with_exit_code_0(archived: SmallFragments, cli: Cli) -> None:
    done = cli("scrub", "--deep", "--output", "json")
    (found,) = done.json
    assert (done.code, found["complete"], found["findings"]) == (0, True, [])
    assert found["pass"]["fragments"] == len(archived.log()) + len(archived.log(OTHERS))
    assert (found["pass"]["unsettled"], found["pass"]["unread"]) == (0, 0)


def test_a_damaged_object_is_told_with_what_to_do_and_mended_only_if_that_is_wanted(
    archived: SmallFragments, cli: Cli, s3: Any
) -> None:
    whole = len(archived.chunks)
    entry = archived.corrupt(s3, 1)
    done = cli("scrub", "orders")
    assert done.code == 5
    assert "StoredChecksumDiffers" in done.out or "ChunksDamaged" in cli("scrub", "orders", "--deep").out
    assert "coldstream scrub orders --repair" in done.out or "--deep" in cli("scrub", "orders", "--deep").out
    assert cli("scrub", "orders", "--deep", "--repair").code == 5
    assert entry in archived.log()
    assert cli("scrub", "orders", "--deep", "--repair", "--take-again").code == 0
    assert entry.next_offset not in {one.next_offset for one in archived.log()}
    assert cli("scrub", "orders", "--deep", "--restart").code == 0
    assert len(list(_read(archived))) == whole - entry.chunks


def _read(archived: SmallFragments) -> list[int]:
    return [entry.chunks for entry in archived.log() for _ in range(entry.chunks)]


def test_a_run_on_a_budget_says_where_the_next_one_goes_on(archived: SmallFragments, cli: Cli) -> None:
    done = cli("scrub", "--max-requests", "100")
    assert done.code == 0
    assert "the next run goes on at" in done.err or "fragments of 2 streams" in done.err
    for _ in range(5):
        (found,) = cli("scrub", "--max-requests", "100", "-o", "json").json
        assert found["requests"] <= 100
        if found["complete"]:
            break
    assert found["complete"]


@pytest.mark.parametrize("arguments", [("--take-again",), ("--max-requests", "5"), ("--max-seconds", "0")])
def test_options_that_make_no_sense_are_refused(archived: SmallFragments, cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("scrub", *arguments).code == 2


def test_a_size_that_is_none_is_refused_by_the_name_of_its_option(archived: SmallFragments, cli: Cli) -> None:
    done = cli("scrub", "--max-bytes", "much")
    assert (done.code, "--max-bytes: 'much' is not a size" in done.err) == (2, True)


def test_a_bucket_that_is_not_there_is_wrong_usage_and_no_damage(
    archived: SmallFragments, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = os.environ["COLDSTREAM_BUCKET"]
    monkeypatch.setenv("COLDSTREAM_BUCKET", "no-such-bucket")
    refused = cli("scrub")
    assert (refused.code, "check the name in COLDSTREAM_BUCKET" in refused.err) == (2, True)
    monkeypatch.setenv("COLDSTREAM_BUCKET", bucket)
    (found,) = cli("scrub", "-o", "json").json
    assert found["pass"]["damages"] == {}
