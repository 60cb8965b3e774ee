"""Storage classes in S3: copies of an object in another class, and restores from archived classes.

A copy goes to a key of its own, by parts, however small it is: only the completion of an upload, and no plain copy, can
be made to depend on the key being free, and the archive's bucket refuses whatever does not (`template.yaml`).
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from coldstream.errors import ColdstreamError, CorruptionError, NotRestoredError, ObjectNotFoundError, ReplacedError
from coldstream.store.awserrors import error_code
from coldstream.store.bucket import base64_of, border, metadata_of
from coldstream.store.listings import class_of, milliseconds
from coldstream.store.multipart import S3Uploads, named_part
from coldstream.store.object_values import ObjectInfo, RestoreState, RestoreTier
from coldstream.units import MIB, ByteRange

if TYPE_CHECKING:
    from mypy_boto3_s3.literals import StorageClassType

COPY_PART_BYTES = 1024 * MIB

_EXPIRY = re.compile(r'expiry-date="(?P<date>[^"]+)"')


class S3Classes(S3Uploads):
    """Implement the storage classes of `ports.ObjectStore`."""

    def copy_in_class(
        self, source_key: str, target_key: str, storage_class: str | None, *, if_match: str
    ) -> ObjectInfo:
        """Copy an object to a key that has none, into a storage class."""
        source = self._there(source_key)
        if source.etag != if_match:
            raise ReplacedError("COPY", source_key)
        with border("new upload to", target_key):
            upload_id = self._client.create_multipart_upload(
                Bucket=self._bucket,
                Key=target_key,
                ChecksumAlgorithm="CRC32",
                ChecksumType="FULL_OBJECT",
                StorageClass=cast("StorageClassType", storage_class or "STANDARD"),
                **metadata_of(source.note),
            )["UploadId"]
        try:
            parts = [
                self.copy_part(source_key, part, target_key, upload_id, number, if_match=source.etag)
                for number, part in enumerate(_ranges(source.size_bytes), 1)
            ]
            checksum: Any = {} if source.crc32 is None else {"ChecksumCRC32": base64_of(source.crc32)}
            with border("completion of", target_key, is_new=True):
                self._client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=target_key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": [named_part(part) for part in parts]},
                    ChecksumType="FULL_OBJECT",
                    IfNoneMatch="*",
                    **checksum,
                )
        except ColdstreamError:
            self.abort_upload(target_key, upload_id)  # its parts would cost storage until a lifecycle rule finds them
            raise
        return self._there(target_key)

    def restore(self, key: str, days: int, tier: RestoreTier) -> None:
        """Have S3 restore an object of an archived class; one POST."""
        try:
            with border("restore of", key):
                self._client.restore_object(
                    Bucket=self._bucket,
                    Key=key,
                    RestoreRequest={"Days": days, "GlacierJobParameters": {"Tier": tier.value}},
                )
        except NotRestoredError as err:
            # S3 has one code for "archived" and for "not archived".
            raise ColdstreamError(f"restore of {key}: its storage class is not archived") from err
        except ColdstreamError as err:
            cause = err.__cause__
            if not isinstance(cause, ClientError) or error_code(cause) != "RestoreAlreadyInProgress":
                raise

    def restore_state(self, key: str) -> RestoreState:
        """Return whether an object can be read, or is being restored; one HEAD."""
        with border("HEAD", key):
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
        said = answer.get("Restore", "")
        if 'ongoing-request="true"' in said:
            return RestoreState(class_of(answer), is_running=True)
        match = _EXPIRY.search(said)
        if match is None:
            return RestoreState(class_of(answer))
        try:
            expires = parsedate_to_datetime(match["date"])
        except ValueError as err:
            raise CorruptionError(key, 0, f"x-amz-restore {said!r} has no date") from err
        return RestoreState(class_of(answer), expires_at=milliseconds(expires))

    def _there(self, key: str) -> ObjectInfo:
        found = self.info(key)
        if found is None:
            raise ObjectNotFoundError(key)
        return found


def _ranges(size_bytes: int) -> list[ByteRange]:
    return [ByteRange(at, min(at + COPY_PART_BYTES, size_bytes)) for at in range(0, size_bytes, COPY_PART_BYTES)]
