"""`resolve` of a sharded stream."""

from __future__ import annotations

from coldstream.errors import StreamNotFoundError
from coldstream.manifest.shard_changes import bound, doubled, first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.super_answer import SuperOrder
from coldstream.store.streams import select_streams
from tests.cli.conftest import Cli
from tests.support.archive import NOW, ChunkArchive, steady
from tests.support.http_archive import HttpObjects, http_archive
from tests.support.written_maps import write


def growing() -> ChunkArchive:
    """Return an archive of one partition, of a sharded stream that is doubling."""
    archive = ChunkArchive(StreamId("/", "all-0", Incarnation("a_1763700000000000000")), objects=HttpObjects())
    archive.add(0, steady(5, 1))
    first = [Partition(0, "all-0")]
    found = first_map("/", "all", ShardKind.SUPER_STREAM, ShardHash.MURMUR3, partitions=first, definition="{}", at=NOW)
    write(archive.table, bound(doubled(bound(found, NOW), [Partition(0, "all-1")], "{}", NOW), NOW))
    return archive


def test_partitions_are_shown_with_what_follows_in_each(cli: Cli) -> None:
    archive = growing()
    with http_archive(archive.table, archive.objects) as where:
        done = cli("resolve", "all", "--resolver", where.url)
        assert done.code == 0
        assert "waits for shard 0 up to its seal" in done.out
        assert "position: v2,0:5,1:0" in done.out
        *_, answer = cli("resolve", "all", "v1,0:5", "--resolver", where.url, "-o", "json").json
        assert [one["ranges"] for one in answer["partitions"]] == [[], []]
        *_, answer = cli("resolve", "all", "--order", SuperOrder.ARRIVAL, "--resolver", where.url, "-o", "json").json
        assert [one["tail"]["next_offset"] for one in answer["partitions"]] == [5, 0]
        refused = cli("resolve", "all", "7", "--resolver", where.url)
        assert refused.code != 0
        assert "means nothing in a sharded stream" in refused.err


def test_a_logical_name_is_described_as_what_it_is(cli: Cli) -> None:
    archive = growing()
    with http_archive(archive.table, archive.objects) as where:
        done = cli("describe", "all", "--resolver", where.url)
        assert done.code == 0
        lines = [" ".join(line.split()) for line in done.out.splitlines()]
        assert {"kind super-stream", "state changing", "all-0", "all-1"} <= set(lines)
        *_, answer = cli("describe", "all", "--resolver", where.url, "-o", "json").json
        assert (answer["name"], answer["is_changing"], len(answer["partitions"])) == ("all", True, 2)
        assert cli("describe", "nothing", "--resolver", where.url).code == 3


def test_a_logical_name_in_place_of_a_stream_is_told_with_its_partitions() -> None:
    try:
        select_streams(growing().table, "/", ["all"])
    except StreamNotFoundError as err:
        told = str(err)
    assert "name its partitions, 'all-0', 'all-1'" in told
