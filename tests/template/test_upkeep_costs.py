"""The costs of the upkeep in docs/deploy.md match the requests counted of its functions on an emulated AWS."""

from __future__ import annotations

from collections import Counter
from typing import cast

import boto3
import pytest

from coldstream.lifecycle.policies import set_policy
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.policy import Policy
from coldstream.scrub.settings import DEFAULT_REQUESTS
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.objects import S3Objects
from coldstream.store.prices import READ_UNIT_USD, WRITE_UNIT_USD, gets_usd, puts_usd
from coldstream.store.table import DynamoTable
from coldstream.units import TimestampMs, now_ms
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.cloudformation import TEMPLATE, Stack
from tests.support.costs import counted, number, rows
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.functions import FunctionContext, load_function

CHUNKS = 96
"""Of a fragment, each with a point of the sparse index: so an entry has the size of one of 64 MiB, about 1.2 KB."""

GB_SECOND_USD = 0.0000166667
DAY_MS = 86_400_000
BATCH = 32
"""Fragments that a removal takes away in one transaction."""


class Archive:
    """One stream in DynamoDB Local and on moto, and the functions, on a clock that a test moves."""

    def __init__(self, objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
        parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
        boto3.session.Session().client("dynamodb").create_table(TableName="upkeep-costs", **parameters)
        variables = {"BUCKET": objects.bucket, "TABLE": "upkeep-costs", "PREFIX": "", "GARBAGE": "report"}
        for name, value in {**variables, "RETENTION": "delete", "SWEEP": "delete"}.items():
            monkeypatch.setenv(f"COLDSTREAM_{name}", value)
        self.later_ms = 0
        monkeypatch.setattr(S3Objects, "clock", property(lambda _: self.now))
        monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 1)
        monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
        self.made = ChunkArchive(sparse_bytes=0)
        self.made.table = cast("MemoryTable", DynamoTable("upkeep-costs"))
        self.made.objects = cast("MemoryObjects", objects)
        self.stores = LifecycleStores.open(self.made.table, objects, Keys(), grace_ms=1000)
        ControlObjects(objects, Keys()).write_stream(STREAM)
        self.sizes: list[int] = []

    def now(self) -> TimestampMs:
        return TimestampMs(now_ms() + self.later_ms)

    def add(self, fragments: int) -> None:
        for _ in range(fragments):
            first = len(self.sizes) * CHUNKS
            times = (NOW - 30 * DAY_MS + (first + chunk) * 1000 for chunk in range(CHUNKS))
            self.sizes.append(self.made.add(first, steady(1, *times)).object_bytes)

    def policy(self, *, keep: int | None = None, cold: int | None = None) -> None:
        """Keep so many fragments, or have so many in a colder class."""
        limits: dict[str, int] = {} if keep is None else {"max_bytes": sum(self.sizes[-keep:])}
        if cold is not None:
            limits["storage_class_age_ms"] = self.now() - (NOW - 30 * DAY_MS + cold * CHUNKS * 1000 - 500)
        set_policy(
            self.stores, Policy("all", "*/*", storage_class=None if cold is None else StorageClass.GLACIER_IR, **limits)
        )

    def run(self, function: str) -> Counter[str]:
        with counted() as counts:
            load_function(function).lambda_handler({}, FunctionContext(function))
        return counts


def thousand(fewer: Counter[str], more: Counter[str], steps: int) -> list[float]:
    """Return what a thousand objects ask for, if `more` had so many more of them."""

    def of(*operations: str) -> float:
        return sum(more[one] - fewer[one] for one in operations) * 1000 / steps

    writes = of("PutObject", "CreateMultipartUpload", "UploadPartCopy", "CompleteMultipartUpload")
    return [writes, of("GetObject", "HeadObject"), of("read units"), of("units by size")]


def said() -> dict[str, list[float]]:
    """Return what the page says of a thousand objects, and the cost of a million."""
    return {what: [number(cell) for cell in cells] for what, *cells in rows("a thousand objects")}


def test_the_functions_ask_for_what_the_table_says(
    dynamodb_local: DynamoDBLocal, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local.url)
    archive, none = Archive(s3_objects, monkeypatch), Counter[str]()
    archive.add(109)
    with counted() as committed:
        archive.add(1)
    ((what, units, _, cost),) = (row for row in rows("archiving 1 TiB") if "write units a fragment" in row[0])
    assert committed["units by size"] == number(what.removeprefix("manifest: ")) == number(units) / (8 * 2199)
    assert number(cost) == pytest.approx(number(units) * 0.625 / 1e6, abs=0.005)
    archive.policy(cold=0)
    before = {one: archive.run(one) for one in ("garbage", "scrub")}
    archive.add(30)
    after = {one: archive.run(one) for one in ("garbage", "scrub")}
    archive.policy(cold=2)
    moved = [archive.run("retention")]
    archive.policy(cold=8)
    moved.append(archive.run("retention"))
    looked = archive.run("retention")
    archive.policy(keep=140 - BATCH)
    removed = [archive.run("retention")]
    archive.policy(keep=140 - 3 * BATCH)
    removed.append(archive.run("retention"))
    archive.later_ms = DAY_MS
    swept = archive.run("sweep")
    assert after["garbage"]["ListObjectsV2"] == 1
    found = {
        "retention: removed": thousand(*removed, BATCH),
        "retention: looked at, for a colder class": thousand(none, looked, 140),
        "retention: moved to `GLACIER_IR`": thousand(*moved, 4),
        "sweep: deleted": thousand(none, swept, 3 * BATCH + 8),
        "garbage: looked at": [1.0, *thousand(before["garbage"], after["garbage"], 30)[1:]],
        "scrub: checked": thousand(before["scrub"], after["scrub"], 30),
    }
    assert {what: counts[:-1] for what, counts in said().items()} == {
        what: pytest.approx(counts, rel=0.15, abs=20) for what, counts in found.items()
    }


def usd_of_a_million(what: str) -> float:
    """Reckon what a million objects cost by the requests of a thousand."""
    writes, reads, read_units, write_units, _ = said()[what]
    puts = puts_usd(int(writes), StorageClass.GLACIER_IR if "GLACIER_IR" in what else None)
    return 1000 * (puts + gets_usd(int(reads)) + read_units * READ_UNIT_USD + write_units * WRITE_UNIT_USD)


def test_the_sums_are_right() -> None:
    for what, (*_, cost) in said().items():
        assert cost == pytest.approx(usd_of_a_million(what), abs=0.006), what


def test_a_month_follows_from_them_and_from_the_most_that_lambda_permits(stack: Stack) -> None:
    months = {what: [number(cell) for cell in cells] for what, *cells in rows("a month, a run a day")}
    sizes = [0.01, 1, 10]  # millions of objects
    checked = DEFAULT_REQUESTS / 2 / 1e6
    gb_s = sum(
        one["Timeout"] * one["MemorySize"] / 1024
        for name, one in stack.of_type("AWS::Serverless::Function").items()
        if name not in {"UploadFunction", "ResolverFunction", "ApiFunction", "JobRunnerFunction", "JobTickFunction"}
    )
    looks = 30 * usd_of_a_million("retention: looked at, for a colder class")
    garbage = 30 * usd_of_a_million("garbage: looked at")
    assert months == {
        "retention, if a policy has a colder class": pytest.approx([looks * size for size in sizes], abs=0.006),
        "garbage": pytest.approx([garbage * size for size in sizes], abs=0.006),
        "scrub, 10,000 objects a run": pytest.approx(
            [30 * checked * usd_of_a_million("scrub: checked")] * 3, abs=0.005
        ),
        "Lambda, if each run takes its 15 minutes": pytest.approx([30 * gb_s * GB_SECOND_USD] * 3, abs=0.005),
        "in all, at most": pytest.approx(
            [sum(column) for column in zip(*(months[one] for one in list(months)[:-1]), strict=True)], abs=0.005
        ),
    }
