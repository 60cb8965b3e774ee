"""The archive for a function that only reads it, by the clients that load fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldstream.store.environment import AwsEnvironment
from coldstream.store.settings import Settings

if TYPE_CHECKING:
    from coldstream.store.ports import ManifestReads, ObjectReads


def archive_reads(settings: Settings) -> tuple[ManifestReads, ObjectReads]:
    """Return the table and the bucket, without the SDK if environment variables say all that it would find out."""
    aws = AwsEnvironment.from_variables()
    bucket_url = None if aws is None else aws.bucket_url(settings.bucket)
    if aws is None or bucket_url is None:
        from coldstream.store.objects import S3Objects  # noqa: PLC0415  # both load the SDK
        from coldstream.store.table import DynamoTable  # noqa: PLC0415

        return DynamoTable(settings.table), S3Objects(settings.bucket)
    from coldstream.store.fast_reads import FastObjects, FastTable  # noqa: PLC0415  # loads what signs

    return FastTable(settings.table, aws), FastObjects(settings.bucket, bucket_url, aws)
