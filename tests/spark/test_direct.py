"""Direct streams in a real Spark, on the emulated AWS: read, compacted, and replayed to tables and to a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream.manifest.entry import Encoding
from coldstream.store.keys import Keys
from coldstream.streams import DirectArchive
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.direct_streams import DATA_BYTES, PUBLISHER, append, bodies, direct_head, opened, scanned
from tests.support.source import Emulated

published = pytest.mark.parametrize("is_published", [False, True], ids=["plain", "published"])


@pytest.fixture
def direct(archive: Emulated) -> DirectArchive:
    return DirectArchive(archive.table, archive.objects, Keys(""))


def values(source: Any, archive: Emulated, **options: Any) -> list[bytes]:
    frame = source.read.format("coldstream").options(**archive.options, stream="orders", **options).load()
    return [bytes(row.value) for row in frame.orderBy("offset").select("value").collect()]


@published
def test_the_source_reads_a_direct_stream_while_it_is_open(
    source: Any, archive: Emulated, direct: DirectArchive, *, is_published: bool
) -> None:
    appended = append(direct, 2, is_published=is_published)
    with opened(direct) as stream:
        stream.append(bodies(100, 3))
        assert values(source, archive) == appended
    assert values(source, archive, startingOffsets="9", minPartitions=3) == [*appended, *bodies(100, 3)][9:]


@published
def test_spark_compacts_a_direct_stream_and_its_publishers_stay(
    spark: Any,
    source: Any,
    archive: Emulated,
    direct: DirectArchive,
    capsysbinary: pytest.CaptureFixture[bytes],
    *,
    is_published: bool,
) -> None:
    import compact  # noqa: PLC0415  only tests with Spark have it

    appended = append(direct, 4, is_published=is_published)
    where = [f"--{name}={value}" for name, value in archive.options.items()]
    capsysbinary.readouterr()
    with opened(direct) as stream:
        code = compact.main([*where, "--all", "--encoding", "zstd-seekable", "--older-than", "0"], spark)
        told = json.loads(capsysbinary.readouterr().out)
        assert (code, told["failed"], told["fragments_after"]) == (0, 0, 1)
        stream.append(bodies(100, 3))
    head = direct_head(direct)
    first = direct.table.log_from_offset(head.stream.incarnation, Offset(0), 1).entries[0]
    assert first.encoding is Encoding.ZSTD_SEEKABLE
    assert scanned(direct, head.stream) == values(source, archive) == [*appended, *bodies(100, 3)]
    with opened(direct) as stream:
        assert stream.publisher_id(PUBLISHER) == (len(appended) if is_published else None)


@published
def test_spark_replays_a_direct_stream_to_a_table_and_to_a_broker(
    spark: Any,
    archive: Emulated,
    direct: DirectArchive,
    broker: Broker,
    tmp_path: Path,
    *,
    is_published: bool,
) -> None:
    from replay import main  # noqa: PLC0415  only tests with Spark have it

    appended = append(direct, 2, is_published=is_published)
    where = [f"--{name}={value}" for name, value in archive.options.items()]
    assert main(["--stream", "orders", "--to-parquet", str(tmp_path / "table"), *where], spark) == 0
    table = spark.read.parquet(str(tmp_path / "table"))
    assert [bytes(row.value) for row in table.orderBy("offset").select("value").collect()] == appended
    name = f"direct by spark {'published' if is_published else 'plain'}"
    with broker.connect() as streams:
        streams.create_stream(name, max_segment_bytes=1_000_000)
        target = ("--to-stream", name, "--broker", broker.stream_uri, "--checkpoint", str(tmp_path / "checkpoint"))
        assert main(["--stream", "orders", *target, *where], spark) == 0
        found = [raw[DATA_BYTES:] for _, raw in streams.read(name, len(appended))]
    assert found == appended
