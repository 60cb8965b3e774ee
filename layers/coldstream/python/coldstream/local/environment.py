"""Where the emulated AWS is, as environment variables: the SDK's own, with credentials that are good for nothing.

Nothing here touches this process's environment. Dictionaries go to the processes that the stack starts, and to clients.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore.config import Config

ENDPOINT = "AWS_ENDPOINT_URL"
REGION = "AWS_DEFAULT_REGION"
ELSEWHERE = {"AWS::S3::Bucket": "s3", "AWS::DynamoDB::Table": "dynamodb"}
"""Resources that may live at another endpoint than the rest, by the SDK's AWS_ENDPOINT_URL_<SERVICE>."""

ATTEMPTS = 2
"""Of one request: the endpoint is on this machine, or it is gone."""

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NO_FILES = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def aws_environment(inherited: Mapping[str, str], endpoint_url: str) -> dict[str, str]:
    """Return what tells an SDK to use the endpoint, and the services that `inherited` has elsewhere.

    Credentials of `inherited` are kept only where it named the endpoint itself: the embedded one gets fake ones.
    """
    environment = {ENDPOINT: endpoint_url, REGION: inherited.get(REGION, "us-east-1")}
    for service in ELSEWHERE.values():
        variable = f"{ENDPOINT}_{service.upper()}"
        if inherited.get(variable):
            environment[variable] = inherited[variable]
    environment.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")  # noqa: S106 - fake, on purpose
    if inherited.get(ENDPOINT):
        environment.update({name: inherited[name] for name in _CREDENTIALS if name in inherited})
    return environment


def process_environment(inherited: Mapping[str, str], *given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process of the stack: `inherited` without anything of AWS's or ours, and `given`."""
    environment = {name: value for name, value in inherited.items() if not name.startswith(("AWS_", "COLDSTREAM_"))}
    environment.update(_NO_FILES)
    for variables in given:
        environment.update(variables)
    return environment


def client(service: str, environment: Mapping[str, str]) -> Any:
    """Return a botocore client made of `environment` alone: no profile, no files, no variables of this process."""
    unset = (None, None, None, None)
    files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    session = botocore.session.Session(session_vars={"profile": unset, **files})
    return session.create_client(
        service,
        region_name=environment[REGION],
        config=Config(connect_timeout=3, retries={"total_max_attempts": ATTEMPTS}),
        endpoint_url=environment.get(f"{ENDPOINT}_{service.upper()}", environment[ENDPOINT]),
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=environment.get("AWS_SESSION_TOKEN"),
    )
