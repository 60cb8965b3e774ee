"""The environment variables that lead an SDK to the emulated AWS, with fake credentials.

Nothing here touches this process's own environment: the dictionaries are for the stack's processes and for clients.
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
"""The resources that may live at an endpoint of their own, by the SDK's AWS_ENDPOINT_URL_<SERVICE>."""

ATTEMPTS = 2
"""Attempts of a request. An endpoint on this machine answers at once, or never."""

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NO_FILES = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def aws_environment(inherited: Mapping[str, str], endpoint_url: str) -> dict[str, str]:
    """Return the variables that lead an SDK to the endpoint, and to the services that `inherited` has elsewhere.

    The credentials of `inherited` are kept only if it names the endpoint itself. The embedded AWS gets fake ones: real
    ones have no business in it.
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
    """Return the environment of a process: `inherited` without the variables of AWS and of coldstream, then `given`."""
    environment = {name: value for name, value in inherited.items() if not name.startswith(("AWS_", "COLDSTREAM_"))}
    environment.update(_NO_FILES)
    for variables in given:
        environment.update(variables)
    return environment


def client(service: str, environment: Mapping[str, str]) -> Any:
    """Return a botocore client that depends on `environment` alone: on no profile, file or variable of this process."""
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
