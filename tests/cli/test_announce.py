from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.archive.envelope import LOST_DETAIL_TYPE, SOURCE, source_of
from coldstream.archive.events import detail_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.announcer import Announcer
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import stream_from_directory
from coldstream.units import Offset
from tests.cli.conftest import ORDERS, Archive, Cli, write_segments


def test_a_dry_run_says_what_would_be_announced_and_changes_nothing(archive: Archive, cli: Cli, tmp_path: Path) -> None:
    borders = write_segments(tmp_path / "__dry_1763700000000000005", chunks=60)
    for _ in range(2):
        (report,) = cli("announce", tmp_path, "--dry-run", "--output", "json").json
        assert report["dry_run"]
        assert [each["first_offset"] for each in report["announced"]] == borders[:-1]
    assert cli("describe", "dry").code == 3


def test_what_is_archived_is_not_announced_again(archive: Archive, cli: Cli) -> None:
    (report,) = cli("announce", archive.node / ORDERS, "--output", "json").json
    assert report["announced"] == []
    assert report["archived"] == len(archive.borders) - 1


def test_every_stream_of_a_node_is_announced_by_the_names_of_its_directories(
    archive: Archive, cli: Cli, tmp_path: Path
) -> None:
    write_segments(tmp_path / "__first_1763700000000000002", chunks=60)
    write_segments(tmp_path / "sales_second_1763700000000000003", chunks=60)
    done = cli("announce", tmp_path, "--wait")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["vhost", "stream", "announced", "archived", "already", "gone", "quarantined"],
        ["/", "first", "1", "0", "0", "0"],
        ["sales", "second", "1", "0", "0", "0"],
    ]
    assert cli("describe", "second", "--vhost", "sales").code == 0


def test_names_that_the_directory_does_not_tell_are_given(archive: Archive, cli: Cli, tmp_path: Path) -> None:
    vhost, name = "ünï/c,o de", "a,b&c=d+é %2C#?"
    directory = tmp_path / "_n__c_o_de_a_b_c_d______2C___1763700000000000004"
    borders = write_segments(directory, chunks=60)
    assert cli("announce", directory, "--vhost", vhost, "--name", name, "--wait").code == 0
    (description,) = cli("describe", name, "--vhost", vhost, "--output", "json").json
    assert description["stream"] == {"vhost": vhost, "name": name, "incarnation": directory.name}
    assert description["next_offset"] == borders[-1]
    assert len(cli("read", name, "--vhost", vhost).json) == borders[-1]


def test_names_for_many_streams_at_once_are_refused(archive: Archive, cli: Cli, tmp_path: Path) -> None:
    for number in (6, 7):
        write_segments(tmp_path / f"__s{number}_176370000000000000{number}", chunks=1)
    done = cli("announce", tmp_path, "--name", "one")
    assert done.code == 2
    assert "name one stream" in done.err


def test_a_directory_without_segments_is_refused_with_what_to_give(archive: Archive, cli: Cli, tmp_path: Path) -> None:
    done = cli("announce", tmp_path)
    assert done.code == 2
    assert "give a stream's directory, or a node's" in done.err


def test_a_segment_that_fails_verification_is_reported_and_the_others_are_archived(
    archive: Archive, cli: Cli, tmp_path: Path
) -> None:
    directory = tmp_path / "__bad_1763700000000000008"
    borders = write_segments(directory)
    segment = directory / f"{borders[1]:020}.segment"
    damaged = bytearray(segment.read_bytes())
    damaged[500] ^= 1
    segment.write_bytes(damaged)
    done = cli("announce", directory, "--wait", "--output", "json")
    assert done.code == 5
    assert done.json[0]["quarantined"] == [borders[1]]
    (description,) = cli("describe", "bad", "--output", "json").json
    assert description["quarantined"] == 1
    (gap,) = description["gaps"]
    assert gap["first_offset"] == borders[1]
    assert gap["reason"].startswith("in quarantine: ")
    assert "in quarantine: " in cli("describe", "bad").out


def test_a_good_copy_is_not_taken_for_the_bad_one_that_was_announced_before(
    archive: Archive, cli: Cli, tmp_path: Path
) -> None:
    directory = tmp_path / "__mended_1763700000000000011"
    borders = write_segments(directory)
    segment = directory / f"{borders[0]:020}.segment"
    good = segment.read_bytes()
    segment.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert cli("announce", directory, "--wait").code == 5
    again = cli("announce", directory, "--wait", "--timeout", "60", "--output", "json")
    assert (again.code, again.json[0]["quarantined"]) == (5, [borders[0]])  # the same bytes, and told again
    segment.write_bytes(good)
    done = cli("announce", directory, "--wait", "--output", "json")
    assert done.code == 0
    (report,) = done.json
    assert [each["first_offset"] for each in report["announced"]] == [borders[0]]
    assert report["quarantined"] == []
    (description,) = cli("describe", "mended", "--output", "json").json
    assert description["gaps"] == []


def test_a_loss_that_is_put_on_the_bus_is_what_a_description_says_of_its_gap(
    archive: Archive, cli: Cli, tmp_path: Path
) -> None:
    directory = tmp_path / "__holed_1763700000000000012"
    first, following = write_segments(directory)[1:3]
    (directory / f"{first:020}.segment").write_bytes(SEGMENT_HEADER)
    assert cli("announce", directory, "--wait").code == 0
    lost = SegmentLost(stream_from_directory(directory.name), Offset(first), Offset(following), "the disk was full")
    bus = Announcer.from_environment().bus
    bus.put(source=SOURCE, detail_type=LOST_DETAIL_TYPE, detail=detail_of(lost))
    archive.stack.wait_idle(30)
    (description,) = cli("describe", "holed", "--output", "json").json
    assert description["gaps"] == [{"first_offset": first, "next_offset": following, "reason": "the disk was full"}]


def test_what_is_not_archived_in_time_is_reported_with_where_to_look(
    archive: Archive, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segments(tmp_path / "__late_1763700000000000009", chunks=60)
    monkeypatch.setattr("coldstream.ingest.bus.EventBridgeBus.put", lambda *_, **__: None)
    done = cli("announce", tmp_path, "--wait", "--timeout", "0.1")
    assert done.code == 6
    assert "1 segments are announced and not archived" in done.err
    assert "dead-letter queue" in done.err


def test_a_segment_that_retention_deletes_meanwhile_is_counted_as_gone(
    archive: Archive, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "__gone_1763700000000000010"
    borders = write_segments(directory)

    def stage(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("coldstream.ingest.announcer.stage", stage)
    (report,) = cli("announce", directory, "--output", "json").json
    assert (report["announced"], report["gone"]) == ([], len(borders) - 1)


@pytest.mark.parametrize("variable", ["COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_EVENT_BUS"])
def test_a_setting_that_is_missing_is_named(
    archive: Archive, cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv(variable)
    done = cli("announce", archive.node / ORDERS)
    assert done.code == 2
    assert done.err == f"coldstream: {variable}: is not set (`coldstream up` prints settings that work)\n"


def test_a_stream_whose_one_segment_is_still_written_is_reported_and_what_archives_it(
    archive: Archive, cli: Cli, tmp_path: Path
) -> None:
    write_segments(tmp_path / "__quiet_1763700000000000009", chunks=1)
    done = cli("announce", tmp_path)
    assert done.code == 0
    assert done.out.splitlines()[1].split() == ["/", "quiet", "0", "0", "0", "0"]
    assert "stream 'quiet' in vhost '/' has only the segment that the broker writes to" in done.err
    assert "coldstream agent --max-lag" in done.err


def test_a_cluster_archives_its_streams_and_is_reported_which_are_anothers(
    archive: Archive, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_CLUSTER", "eu")
    borders = write_segments(tmp_path / "__of-eu_1763700000000000011", chunks=60)
    assert cli("announce", tmp_path, "--wait").code == 0
    (description,) = cli("describe", "of-eu", "--output", "json").json
    assert description["next_offset"] == borders[-1]
    write_segments(tmp_path / "again" / "__of-eu_1763700000000000012", chunks=60)
    for other in ("us", ""):
        monkeypatch.setenv("COLDSTREAM_CLUSTER", other)
        done = cli("announce", tmp_path / "again", "--wait")
        assert done.code == 2
        assert "is bound to cluster 'eu' in this archive" in done.err
    monkeypatch.setenv("COLDSTREAM_CLUSTER", "not a name")
    done = cli("announce", tmp_path, "--wait")
    assert done.code == 2
    assert "COLDSTREAM_CLUSTER" in done.err


def test_what_another_cluster_announces_all_the_same_is_a_dead_letter_and_nothing_else(
    archive: Archive, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that does not ask, as a compromised one, is refused by the function."""
    write_segments(tmp_path / "one" / "__bound_1763700000000000013", chunks=60)
    monkeypatch.setenv("COLDSTREAM_CLUSTER", "eu")
    assert cli("announce", tmp_path / "one", "--wait").code == 0
    (before,) = cli("describe", "bound", "--output", "json").json
    newer = stream_from_directory("__bound_1763700000000000014")
    bus = Announcer.from_environment().bus
    lost = SegmentLost(newer, Offset(0), Offset(100), "lost, says another", Cluster("us"))
    bus.put(source=source_of(lost.cluster), detail_type=LOST_DETAIL_TYPE, detail=detail_of(lost))
    lost = replace(lost, stream=stream_from_directory("__bound_1763700000000000013"))
    bus.put(source=source_of(lost.cluster), detail_type=LOST_DETAIL_TYPE, detail=detail_of(lost))
    archive.stack.wait_idle(60)
    assert cli("describe", "bound", "--output", "json").json == [before]
