"""`coldstream rebuild`, `history` and `describe --at` on an archive of the emulated AWS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.manifest.access import Grant
from coldstream.manifest.claiming import plan_claim
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import MAX_OFFSET, Offset, TimestampMs, format_timestamp
from tests.cli.conftest import Cli
from tests.support.small_fragments import ORDERS, OTHERS, PREFIX, SmallFragments


@pytest.fixture
def archived(archived: SmallFragments, s3_objects: S3Objects) -> SmallFragments:
    control = ControlObjects(s3_objects, Keys(PREFIX))
    for stream in (ORDERS, OTHERS):
        control.write_stream(stream)
    control.write_grant(Grant("arn:aws:iam::123456789012:role/x", "*/*"))
    return archived


@pytest.fixture
def to_table(create_table: Callable[[], str]) -> str:
    return create_table()


def test_an_archive_is_rebuilt_and_compared(archived: SmallFragments, cli: Cli, to_table: str) -> None:
    assert cli("compact", "orders", "--encoding", "zstd-seekable", "--older-than", "0s").code == 0
    reports = cli("rebuild", "--to-table", to_table, "-o", "json").json
    assert {(one["name"], one["done"], one["unreadable_count"]) for one in reports} == {
        ("orders", True, 0),
        ("others", True, 0),
    }
    compared = cli("rebuild", "--to-table", to_table, "--compare")
    assert (compared.code, compared.out) == (0, "")
    assert "2 streams compared, 0 differences" in compared.err
    assert len(DynamoTable(to_table).grants()) == 1


def test_tables_that_differ_end_with_a_code_of_their_own(archived: SmallFragments, cli: Cli, to_table: str) -> None:
    assert cli("rebuild", "orders", "--to-table", to_table).code == 0
    cli("compact", "orders", "--older-than", "0s")
    compared = cli("rebuild", "orders", "--to-table", to_table, "--compare")
    assert compared.code == 5
    assert "not in the rebuilt table" in compared.out or " rebuilt " in compared.out
    found = cli("rebuild", "orders", "--to-table", to_table, "--compare", "-o", "json").json
    assert {"incarnation", "item", "table", "rebuilt", "fields"} == set(found[0])


def test_a_dry_run_writes_nothing(archived: SmallFragments, cli: Cli, to_table: str) -> None:
    done = cli("rebuild", "orders", "--to-table", to_table, "--dry-run")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[:3] == ["/", "orders", str(len(archived.log()))]
    assert DynamoTable(to_table).head(ORDERS.incarnation) is None


def test_an_object_that_cannot_be_read_is_named(archived: SmallFragments, cli: Cli, to_table: str, s3: Any) -> None:
    entry = archived.log()[2]
    s3.put_object(Bucket=archived.objects.bucket, Key=entry.key, Body=b"damaged")
    done = cli("rebuild", "--to-table", to_table)
    assert done.code == 5
    assert f"not read: {entry.key}" in done.err


def test_the_archives_own_table_is_refused(archived: SmallFragments, cli: Cli, table_name: str) -> None:
    done = cli("rebuild", "--to-table", table_name)
    assert done.code == 2
    assert "own table" in done.err


def test_a_stream_that_the_bucket_does_not_have_is_not_found(archived: SmallFragments, cli: Cli, to_table: str) -> None:
    done = cli("rebuild", "nothing", "--to-table", to_table)
    assert done.code == 3
    assert "'nothing'" in done.err


def test_a_time_that_is_none_is_refused(archived: SmallFragments, cli: Cli, to_table: str) -> None:
    assert cli("rebuild", "--to-table", to_table, "--at", "someday").code == 2


def test_the_history_of_a_stream_is_its_journal(archived: SmallFragments, cli: Cli) -> None:
    events = list(archived.table.journal(ORDERS.incarnation))
    found = cli("history", "orders", "-o", "json").json
    assert [one["revision"] for one in found] == [event.revision for event in events]
    last = cli("history", "orders", "--limit", "2")
    heads, *rows = last.out.splitlines()
    assert heads.split() == ["at", "revision", "change", "offsets", "by", "detail"]
    assert len(rows) == 2
    assert "Fragment Committed" in rows[-1]
    assert "only the last 2" in last.err
    assert cli("history", "orders", "--until", "yesterday", "-o", "json").json == []
    assert len(cli("history", "orders", "--since", "-1h", "-o", "json").json) == len(events)


def test_the_history_tells_of_a_claim_whose_end_no_key_says_from_where_on_it_is(
    archived: SmallFragments, cli: Cli
) -> None:
    head = archived.table.head(ORDERS.incarnation)
    assert head is not None
    archived.table.apply(plan_claim(head, [(Offset(5), Offset(MAX_OFFSET + 1))], (), TimestampMs(0)))
    assert "Deletion Claimed  from 5" in cli("history", "orders", "--limit", "1").out


def test_a_stream_is_described_as_it_was(archived: SmallFragments, cli: Cli) -> None:
    now = cli("describe", "orders", "--at", "now", "-o", "json").json[0]
    head = archived.table.head(ORDERS.incarnation)
    assert head is not None
    assert (now["revision"], now["next_offset"], now["fragments"]) == (head.revision, head.next_offset, head.fragments)
    assert "tail" in cli("describe", "orders", "--at", "now").out
    first = next(iter(archived.table.journal(ORDERS.incarnation)))
    then = cli("describe", "orders", "--at", format_timestamp(first.at), "-o", "json").json[0]
    assert then["revision"] >= 1
    assert then["first_offset"] == 0
    before = cli("describe", "orders", "--at", "2020-01-01")
    assert before.code == 3
    assert "nothing of stream 'orders'" in before.err


def test_a_description_of_now_needs_the_resolver(archived: SmallFragments, cli: Cli) -> None:
    done = cli("describe", "orders")
    assert done.code == 2
    assert "COLDSTREAM_RESOLVER_URL" in done.err


def test_the_history_of_a_deleted_stream_is_told(archived: SmallFragments, cli: Cli) -> None:
    assert cli("delete", "orders", "--yes").code == 0
    (last,) = cli("history", "orders", "--limit", "1", "-o", "json").json
    assert last["kind"] == "Stream Deleted"
