"""AWS as described by environment variables alone, on Lambda or in a process that imitates it.

The SDK's rules for credentials, regions and endpoints are long, and loading the SDK takes longer than an answer. This
module reads the part of the rules that Lambda uses. If anything else may matter, the SDK has to read the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

_KNOWN = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_CONFIG_FILE",
        "AWS_DEFAULT_REGION",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
        "AWS_EXECUTION_ENV",
        "AWS_REGION",
        "AWS_SAM_LOCAL",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
)
_KNOWN_KINDS = ("AWS_ENDPOINT_URL_", "AWS_LAMBDA_", "AWS_XRAY_")
"""Variables that this module knows, or that do not matter to requests. With any other AWS_ variable, use the SDK."""

_OF_HTTP = frozenset({"http_proxy", "https_proxy", "all_proxy"})
"""Variables, in lower case, that change how the SDK connects."""

_OF_TLS = frozenset({"aws_ca_bundle", "requests_ca_bundle"})
"""Variables, in lower case, that change whom the SDK trusts, and so nothing where no endpoint has a certificate."""

_REGION = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)(?:-gov)?-[a-z]+-[0-9]+")
"""Regions whose services have names under amazonaws.com."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""Bucket names that are one label of a host name. Only the SDK knows the hosts of others and of access points."""

_PORTS = {"http": 80, "https": 443}
"""Default ports by scheme. An endpoint that names its default port needs the SDK: signatures cover the host name."""


@dataclass(frozen=True, slots=True)
class AwsEnvironment:
    """Region, credentials, and endpoints that are not AWS's own, each as scheme, host and port without a path."""

    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    dynamodb_endpoint: str | None = None
    s3_endpoint: str | None = None

    @classmethod
    def from_variables(cls, variables: Mapping[str, str] = os.environ) -> Self | None:
        """Read the environment; None if only the SDK can."""
        region = variables.get("AWS_DEFAULT_REGION", "")
        key_id, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
        if not (key_id and secret and _REGION.fullmatch(region)):
            return None
        try:
            endpoints = _endpoint(variables, "DYNAMODB"), _endpoint(variables, "S3")
        except ValueError:
            return None
        if _is_beyond(variables, is_tls=not all(url is not None and url.startswith("http:") for url in endpoints)):
            return None
        return cls(region, key_id, secret, variables.get("AWS_SESSION_TOKEN") or None, *endpoints)

    @property
    def dynamodb_url(self) -> str:
        """The URL of DynamoDB."""
        return self.dynamodb_endpoint or f"https://dynamodb.{self.region}.amazonaws.com"

    def bucket_url(self, bucket: str) -> str | None:
        """Return the URL of a bucket, None if only the SDK knows it.

        A bucket on AWS has its own host; at an endpoint of the user's, addresses are path-style.
        """
        if not _BUCKET.fullmatch(bucket) or bucket.startswith("xn--"):
            return None
        if self.s3_endpoint is not None:
            return None if "amazonaws.com" in self.s3_endpoint else f"{self.s3_endpoint}/{bucket}"
        # As in the SDK, a bucket in us-east-1 has a host without a region.
        service = "s3" if self.region == "us-east-1" else f"s3.{self.region}"
        return f"https://{bucket}.{service}.amazonaws.com"


def _is_beyond(variables: Mapping[str, str], *, is_tls: bool) -> bool:
    """Tell whether a variable or a configuration file may change more than this module knows."""
    for name in variables:
        if name.lower() in _OF_TLS:
            if is_tls:
                return True
            continue
        if name.startswith("AWS_") and name not in _KNOWN and not name.startswith(_KNOWN_KINDS):
            return True
        if name.lower() in _OF_HTTP:
            return True
    return Path(variables.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser().is_file()


def _endpoint(variables: Mapping[str, str], service: str) -> str | None:
    """Read the endpoint of a service. Raises ValueError unless it is just scheme, host and port."""
    url = variables.get(f"AWS_ENDPOINT_URL_{service}", variables.get("AWS_ENDPOINT_URL"))
    if url is None:
        return None
    parts = urlsplit(url)
    is_host = re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]+)?", parts.netloc)
    if not is_host or parts.scheme not in _PORTS or parts.port == _PORTS[parts.scheme]:
        raise ValueError(url)
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(url)
    return f"{parts.scheme}://{parts.netloc}"
