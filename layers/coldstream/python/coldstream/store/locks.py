"""What a bucket in S3 does with what is deleted: versions, Object Lock and its legal holds, lifecycle rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from coldstream.errors import AccessDeniedError, ColdstreamError, InvalidSettingError
from coldstream.store.awserrors import error_code
from coldstream.store.bucket import S3Bucket, border
from coldstream.store.object_values import BucketCapabilities

_NONE = frozenset({"NoSuchLifecycleConfiguration", "NotImplemented", "ObjectLockConfigurationNotFoundError"})
"""The bucket has no such configuration, or the store, which is not S3, has none for any bucket."""

_NO_HOLD = frozenset({"InvalidRequest", "NoSuchObjectLockConfiguration", "ObjectLockConfigurationNotFoundError"})


class S3Locks(S3Bucket):
    """Implement the legal holds of `ports.ObjectStore`, and say what the bucket can do."""

    def capabilities(self) -> BucketCapabilities:
        """Return whether the bucket keeps versions, locks objects, and deletes by itself; three GETs."""
        versioning = self._configuration(self._client.get_bucket_versioning)
        lock = self._configuration(self._client.get_object_lock_configuration)
        lifecycle = self._configuration(self._client.get_bucket_lifecycle_configuration)
        locked = None if lock is None else lock.get("ObjectLockConfiguration", {})
        return BucketCapabilities(
            versioned=None if versioning is None else "Status" in versioning,
            object_lock=None if locked is None else locked.get("ObjectLockEnabled") == "Enabled",
            default_retention=_retention((locked or {}).get("Rule", {}).get("DefaultRetention", {})),
            lifecycle=None if lifecycle is None else tuple(map(_line, filter(_is_on, lifecycle.get("Rules", ())))),
        )

    def legal_hold(self, key: str, version_id: str | None = None) -> bool:
        """Tell whether an object, or one version of it, is under a legal hold; one GET."""
        try:
            with border("legal hold of", key):
                answer = self._client.get_object_legal_hold(Bucket=self._bucket, Key=key, **_of(version_id))
        except ColdstreamError as err:
            if _code(err) in _NO_HOLD:
                return False
            raise
        return answer.get("LegalHold", {}).get("Status") == "ON"

    def put_legal_hold(self, key: str, on: bool, version_id: str | None = None) -> None:  # noqa: FBT001  `on` is the value
        """Put an object, or one version of it, under a legal hold, or release it; one PUT."""
        try:
            with border("legal hold of", key):
                self._client.put_object_legal_hold(
                    Bucket=self._bucket, Key=key, LegalHold={"Status": "ON" if on else "OFF"}, **_of(version_id)
                )
        except ColdstreamError as err:
            if _code(err) in _NO_HOLD:
                raise InvalidSettingError("bucket", f"{self._bucket} has no Object Lock") from err
            raise

    def _configuration(self, get: Callable[..., Any]) -> Mapping[str, Any] | None:
        """Return a configuration of the bucket, empty if it has none, and None if nobody may tell us."""
        try:
            with border("configuration of", self._bucket):
                answer: Mapping[str, Any] = get(Bucket=self._bucket)
        except AccessDeniedError:
            return None
        except ColdstreamError as err:
            if _code(err) in _NONE:
                return {}
            raise
        return answer


def _of(version_id: str | None) -> Any:
    return {} if version_id is None else {"VersionId": version_id}


def _code(err: ColdstreamError) -> str:
    cause = err.__cause__
    return error_code(cause) if isinstance(cause, ClientError) else ""


def _retention(found: Mapping[str, Any]) -> str | None:
    for unit in ("Days", "Years"):
        if unit in found:
            return f"{found.get('Mode')} {found[unit]} {unit.lower()}"
    return None


def _is_on(rule: Mapping[str, Any]) -> bool:
    return rule.get("Status") == "Enabled"


def _line(rule: Mapping[str, Any]) -> str:
    """Describe a lifecycle rule by what it does, and to which keys."""
    filtered = rule.get("Filter", {})
    prefix = filtered.get("Prefix", filtered.get("And", {}).get("Prefix", rule.get("Prefix", "")))
    return f"{rule.get('ID', 'a rule')}, of {prefix}*: {', '.join(_actions(rule)) or 'nothing'}"


def _actions(rule: Mapping[str, Any]) -> Iterator[str]:
    for name, verb in (("Expiration", "deletes"), ("NoncurrentVersionExpiration", "deletes earlier versions")):
        after = rule.get(name, {})
        if after.get("ExpiredObjectDeleteMarker"):
            yield "deletes delete markers that are alone"
        elif after:
            yield f"{verb} {_when(after)}"
    for name, what in (("Transitions", "moves to"), ("NoncurrentVersionTransitions", "moves earlier versions to")):
        for move in rule.get(name, ()):
            yield f"{what} {move.get('StorageClass')} {_when(move)}"
    if after := rule.get("AbortIncompleteMultipartUpload", {}):
        yield f"aborts unfinished uploads after {after.get('DaysAfterInitiation')} days"


def _when(after: Mapping[str, Any]) -> str:
    days = after.get("Days", after.get("NoncurrentDays"))
    return f"after {days} days" if days is not None else f"on {after.get('Date')}"
