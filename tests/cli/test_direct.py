"""The commands on a direct stream, on the emulated AWS: what they say of it, and what they do to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.streams import DirectArchive
from tests.cli.conftest import Cli
from tests.support.direct_streams import append, bodies, direct_head, opened, scanned


@pytest.fixture
def direct(
    table_name: str, dynamo_table: DynamoTable, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> DirectArchive:
    """An archive that the environment names, with a direct stream that has a publisher."""
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    archive = DirectArchive(dynamo_table, s3_objects, Keys(""))
    append(archive, 2, is_published=True)
    return archive


def test_its_history_says_who_opened_it_and_its_past_what_it_was(direct: DirectArchive, cli: Cli) -> None:
    changes = [one["kind"] for one in cli("history", "orders", "-o", "json").json]
    assert changes[:2] == ["Stream Created", "Stream Opened"]
    assert changes[-1] == "Stream Closed"
    with opened(direct):
        assert "epoch 2, s3 " in cli("history", "orders").out
        past = {line[:18].strip(): line[18:] for line in cli("describe", "orders", "--at", "now").out.splitlines()}
        assert past["direct"].startswith("epoch 2, by ")
        assert past["tail"] == "26"


def test_nobody_who_looks_after_an_archive_has_anything_against_it(direct: DirectArchive, cli: Cli) -> None:
    with opened(direct) as stream:
        stream.append(bodies(100, 3))
        scrubbed = cli("scrub", "--deep")
        assert (scrubbed.code, " 0 damages in this run" in scrubbed.err) == (0, True)
        doctored = cli("doctor", "-o", "json")
        assert doctored.code == 0
        (streams,) = [one for one in doctored.json if one["part"] == "streams"]
        assert streams["verdict"] == "ok"


def test_an_erasure_waits_for_the_log_and_says_so(direct: DirectArchive, cli: Cli) -> None:
    with opened(direct) as stream:
        first = stream.append(bodies(100, 3))
        stream.flush()
        asked = ("erase", "orders", "--offsets", f"{first}:{stream.confirmed}", "--reason", "ticket 4711")
        assert "would have to go first: object of a write-ahead log wal/" in cli(*asked, "--dry-run").err
        refused = cli(*asked, "--yes")
        assert (refused.code, "no live write-ahead log" in refused.err) == (7, True)
        refused = cli(*asked, "--yes", "--with-quarantine")
        assert (refused.code, "deletes when its client is closed" in refused.err) == (7, True)
    assert "3 messages erased" in cli(*asked, "--yes").out
    assert scanned(direct, direct_head(direct).stream)[-3:] == [b"", b"", b""]


def test_it_is_deleted_brought_back_and_rebuilt_from_the_bucket(
    direct: DirectArchive, cli: Cli, create_table: Callable[[], str]
) -> None:
    appended = scanned(direct, direct_head(direct).stream)
    assert cli("delete", "orders", "--yes").code == 0
    assert cli("undelete", "orders").code == 0
    again = create_table()
    rebuilt = cli("rebuild", "--to-table", again)
    assert rebuilt.code == 0, rebuilt.err
    later = DirectArchive(DynamoTable(again), direct.objects, direct.keys)
    more = append(later, 1, is_published=True)
    assert scanned(later, direct_head(later).stream) == appended + more
    assert direct_head(later).appender != direct_head(direct).appender
