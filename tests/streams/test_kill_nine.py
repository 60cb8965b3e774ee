"""Real processes are killed at random while they append: nothing acknowledged is lost, doubled or out of order.

`make soak` kills more often: COLDSTREAM_KILLS, from COLDSTREAM_FIRST_SEED on. Requests to S3 go through a relay that
refuses some, and cuts connections before or after S3 has carried them out.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from bench.local_s3 import LocalS3
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from tests.support.cloudformation import TEMPLATE
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.faults import Faults, FaultyAws
from tests.support.kill_nine import KillPlace, kill_often

pytestmark = [pytest.mark.server, pytest.mark.slow]

KILLS = int(os.environ.get("COLDSTREAM_KILLS", "3"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "36"))
"""By default one whose few kills are of every kind: under load, before it has begun, and of one that was stopped."""

STREAMS = 8


@pytest.fixture
def place(dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch) -> Iterator[KillPlace]:
    variables = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_local.url,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    name = f"kills-{uuid4()}"
    parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
    boto3.session.Session().client("dynamodb").create_table(TableName=name, **parameters)
    with LocalS3(latency_ms=5) as s3, FaultyAws(s3.url, seed=FIRST_SEED) as relay:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", relay.url)
        relay.faults = Faults(error_rate=0.02, drop_rate=0.03)
        yield KillPlace(name, "bucket", STREAMS)


@pytest.mark.parametrize("log", ["S3", "disk"])
def test_nothing_acknowledged_is_lost_whoever_is_killed(place: KillPlace, log: str, tmp_path: Path) -> None:
    if log == "disk":
        place = KillPlace(place.table, place.bucket, place.streams, tmp_path / "wal")
    began = time.monotonic()
    figures = asyncio.run(kill_often(place, kills=KILLS, seed=FIRST_SEED))
    acknowledged = sum(len(one) for one in figures.acknowledged.values())
    print(  # noqa: T201  for `make soak`
        f"log in {log}: {figures.kills} kills, {figures.zombies} stopped and continued after another took over, "
        f"{acknowledged} batches acknowledged, all found; {figures.recovered} found besides, {len(figures.refused)} "
        f"refused, in {time.monotonic() - began:.0f} s"
    )
    assert acknowledged > KILLS
    assert figures.refused
