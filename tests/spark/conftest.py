"""What tests of the data source share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.support.source import Emulated, chunks


@pytest.fixture
def archive(create_table: Callable[[], str], s3: Any) -> Emulated:
    """An empty archive in the emulated AWS."""
    bucket = f"archive-{uuid4()}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    return Emulated(create_table(), bucket)


@pytest.fixture(scope="session")
def source(spark: Any) -> Any:
    """The session, which knows the data source."""
    from coldstream_spark import register  # noqa: PLC0415  only tests with Spark have it

    register(spark)
    return spark


@pytest.fixture
def orders(archive: Emulated) -> Emulated:
    """Forty messages in eight chunks in two fragments."""
    stream = archive.stream("orders")
    stream.add(0, chunks(4))
    stream.add(20, chunks(4, start_ms=5_000))
    return archive


@pytest.fixture
def holed(archive: Emulated) -> Emulated:
    """Offsets 0 to 9 and 20 to 29."""
    stream = archive.stream("orders")
    stream.add(0, chunks(2))
    stream.add(20, chunks(2))
    return archive
