"""The functions' configuration: one frozen value, read from the environment at the first invocation.

The SDK finds endpoint, region and credentials by its own variables (AWS_ENDPOINT_URL and others).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.errors import InvalidNameError, InvalidSettingError
from coldstream.manifest.access import SCOPE_CLAIM
from coldstream.manifest.cluster import NO_CLUSTER, Cluster, agents_cluster
from coldstream.manifest.entry import Encoding
from coldstream.units import KIB, MIB

DEFAULT_FRAGMENT_BYTES = 64 * MIB
DEFAULT_URL_EXPIRY_S = 3600

MIN_FRAGMENT_BYTES = 64 * KIB
"""The fragments of a segment of 4 GiB are numbered in 16 bits."""

MAX_FRAGMENT_BYTES = 1024 * MIB
"""Positions in a fragment have 32 bits, and its last chunk may be large."""

DEFAULT_COMPRESSION_LEVEL = 3
"""zstd's own, and `compact`'s."""

MAX_COMPRESSION_LEVEL = 19
"""At higher levels readers, too, would need 128 MiB."""

METRICS_NAMESPACE = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "coldstream")
"""The namespace of the functions' metrics. Each stack has its own, so that alarms of two stacks stay apart."""

MAX_URL_EXPIRY_S = 7 * 24 * 3600
"""SigV4's own limit."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of the functions.

    `prefix` is empty or ends in a slash. `fragment_bytes` is the size of data past which a fragment ends. `spool_dir`
    is where fragments wait on disk on their way to the bucket, None for the system's temporary directory.
    New fragments get the `encoding`, at zstd's `compression_level` if that is `zstd-seekable`.
    `url_expiry_s` is how long a presigned URL is valid. `cluster` is the cluster that an agent announces for.
    `token_permissions` and `iam_permissions` tell whether the resolver checks which streams its caller may read: by the
    scopes in the claim `scope_claim` of a token, or by the table's grants to an IAM principal.
    """

    bucket: str
    table: str
    prefix: str = ""
    fragment_bytes: int = DEFAULT_FRAGMENT_BYTES
    encoding: Encoding = Encoding.IDENTITY
    compression_level: int = DEFAULT_COMPRESSION_LEVEL
    spool_dir: str | None = None
    url_expiry_s: int = DEFAULT_URL_EXPIRY_S
    cluster: Cluster = NO_CLUSTER
    token_permissions: bool = True
    iam_permissions: bool = False
    scope_claim: str = SCOPE_CLAIM

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read COLDSTREAM_*, an empty variable counting as absent. Raises InvalidSettingError, naming the variable."""
        prefix = environment.get("COLDSTREAM_PREFIX", "")
        if prefix.startswith("/") or (prefix and not prefix.endswith("/")):
            raise InvalidSettingError(
                "COLDSTREAM_PREFIX", f"{prefix!r} is neither empty nor text that ends, and does not begin, with a slash"
            )
        return cls(
            bucket=_text(environment, "COLDSTREAM_BUCKET"),
            table=_text(environment, "COLDSTREAM_TABLE"),
            prefix=prefix,
            cluster=_cluster(environment),
            fragment_bytes=_number(
                environment, "COLDSTREAM_FRAGMENT_BYTES", DEFAULT_FRAGMENT_BYTES, MIN_FRAGMENT_BYTES, MAX_FRAGMENT_BYTES
            ),
            encoding=_encoding(environment),
            compression_level=_number(
                environment, "COLDSTREAM_COMPRESSION_LEVEL", DEFAULT_COMPRESSION_LEVEL, 1, MAX_COMPRESSION_LEVEL
            ),
            spool_dir=environment.get("COLDSTREAM_SPOOL_DIR") or None,
            url_expiry_s=_number(environment, "COLDSTREAM_URL_EXPIRY_S", DEFAULT_URL_EXPIRY_S, 1, MAX_URL_EXPIRY_S),
            token_permissions=_flag(environment, "COLDSTREAM_TOKEN_PERMISSIONS", default=True),
            iam_permissions=_flag(environment, "COLDSTREAM_IAM_PERMISSIONS", default=False),
            scope_claim=environment.get("COLDSTREAM_SCOPE_CLAIM") or SCOPE_CLAIM,
        )

    @property
    def zstd_level(self) -> int | None:
        """The level at which new fragments are compressed, None if they are not."""
        return None if self.encoding is Encoding.IDENTITY else self.compression_level


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidSettingError(name, "is not set")
    return value


def _encoding(environment: Mapping[str, str]) -> Encoding:
    text = environment.get("COLDSTREAM_ENCODING") or Encoding.IDENTITY
    try:
        return Encoding(text)
    except ValueError as err:
        raise InvalidSettingError("COLDSTREAM_ENCODING", f"{text!r} is none of {', '.join(Encoding)}") from err


def _cluster(environment: Mapping[str, str]) -> Cluster:
    text = environment.get("COLDSTREAM_CLUSTER", "")
    try:
        return agents_cluster(text) if text else NO_CLUSTER
    except InvalidNameError as err:
        raise InvalidSettingError("COLDSTREAM_CLUSTER", err.problem) from err


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environment.get(name) or str(default).lower()
    if text not in {"true", "false"}:
        raise InvalidSettingError(name, f"{text!r} is neither true nor false")
    return text == "true"


def _number(environment: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise InvalidSettingError(name, f"{text!r} is not a number from {least} to {most}")
    return int(text)
