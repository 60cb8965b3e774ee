"""Deletion of many objects or versions in S3, a thousand a request.

Only what an answer names as deleted counts as deleted. A key that XML cannot hold, or that its parsers change, has a
DELETE of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from coldstream.errors import ColdstreamError
from coldstream.retry import Backoff
from coldstream.store.awserrors import error_code, is_try_later
from coldstream.store.bucket import MORE_ATTEMPTS, S3Bucket, border
from coldstream.store.object_values import DeleteFailure, DeleteReport
from coldstream.store.signing import signing_as_of
from coldstream.units import TimestampMs

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

PAGE = 1000
"""Objects that one DeleteObjects may name."""

_NOT_IN_XML = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Control characters, which XML 1.0 cannot hold or its parsers change, and what is no character."""

_MAY_PASS = frozenset({"InternalError", "ServiceUnavailable"})
_UNNAMED = "NotNamed"

Target = tuple[str, str | None]
"""Key and version id of what to delete; None is the object, whatever its version."""


class S3Deletes(S3Bucket):
    """Implement the deletions of `ports.ObjectStore`."""

    def delete_many(self, keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
        """Delete the objects at these keys; one DeleteObjects a thousand."""
        with signing_as_of(signed_at):
            return self._delete([(key, None) for key in keys])

    def delete_versions(
        self, versions: Sequence[tuple[str, str]], *, signed_at: TimestampMs | None = None
    ) -> DeleteReport:
        """Delete versions for good; one DeleteObjects a thousand."""
        with signing_as_of(signed_at):
            return self._delete(versions)

    def _delete(self, targets: Sequence[Target]) -> DeleteReport:
        """Delete targets, each once, and again those at which S3 failed."""
        unique = tuple(dict.fromkeys(targets))
        left: Collection[Target] = unique
        failures: dict[Target, tuple[str, str]] = {}
        backoff = Backoff(0.2, 1)
        for attempt in range(MORE_ATTEMPTS):
            if attempt:
                time.sleep(backoff.next_delay_s())
            found = self._attempt(left)
            failures = {target: failure for target, failure in failures.items() if target not in left} | found
            left = tuple(target for target, (code, _) in found.items() if _is_passing(code))
            if not left:
                break
        deleted = tuple(key for key, version_id in unique if (key, version_id) not in failures)
        return DeleteReport(
            deleted, tuple(_failure(target, *failures[target]) for target in unique if target in failures)
        )

    def _attempt(self, targets: Collection[Target]) -> dict[Target, tuple[str, str]]:
        """Send each target once; return code and message of those that were not deleted."""
        failures: dict[Target, tuple[str, str]] = {}
        alone = [target for target in targets if _NOT_IN_XML.search(target[0])]
        together = [target for target in targets if not _NOT_IN_XML.search(target[0])]
        for at in range(0, len(together), PAGE):
            failures |= self._delete_page(together[at : at + PAGE])
        for target in alone:
            failures |= self._delete_one(target)
        return failures

    def _delete_page(self, targets: Sequence[Target]) -> dict[Target, tuple[str, str]]:
        named: list[ObjectIdentifierTypeDef] = [
            {"Key": key} if version_id is None else {"Key": key, "VersionId": version_id} for key, version_id in targets
        ]
        with border("DELETE of many, from", targets[0][0]):
            answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": named, "Quiet": False})
        return dict(_failures(targets, answer))

    def _delete_one(self, target: Target) -> dict[Target, tuple[str, str]]:
        key, version_id = target
        version: Any = {} if version_id is None else {"VersionId": version_id}
        try:
            with border("DELETE", key):
                self._client.delete_object(Bucket=self._bucket, Key=key, **version)
        except ColdstreamError as err:
            if err.retryable:
                raise
            cause = err.__cause__
            return {target: (error_code(cause) if isinstance(cause, ClientError) else "Failed", str(err))}
        return {}


def _failures(targets: Sequence[Target], answer: Mapping[str, Any]) -> Iterator[tuple[Target, tuple[str, str]]]:
    """Yield what an answer does not name as deleted, with code and message."""
    deleted = {(one.get("Key"), one.get("VersionId")) for one in answer.get("Deleted", ())}
    errors = {(one.get("Key"), one.get("VersionId")): one for one in answer.get("Errors", ())}
    for key, version_id in targets:
        if (key, version_id) in deleted:
            continue
        # An answer about a version may leave out which: every version of the key then failed.
        error = errors.get((key, version_id)) or errors.get((key, None))
        if error is None:
            yield (key, version_id), (_UNNAMED, "the answer does not name it")
        else:
            yield (key, version_id), (error.get("Code", ""), error.get("Message", ""))


def _is_passing(code: str) -> bool:
    return code in _MAY_PASS or code == _UNNAMED or is_try_later(code)


def _failure(target: Target, code: str, message: str) -> DeleteFailure:
    key, version_id = target
    return DeleteFailure(key, f"{'' if version_id is None else f'version {version_id}: '}{code}: {message}")
