"""Secrets of AWS Secrets Manager."""

from __future__ import annotations

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from coldstream.errors import InvalidSettingError
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, error_code, from_aws

_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 3, "mode": "standard"})


def read_secret(name: str) -> str:
    """Return the text of a secret, by its name or ARN. Cost: one request.

    Raises InvalidSettingError if there is none, UnavailableError.
    """
    try:
        client = boto3.client("secretsmanager", config=_CONFIG)
        refuse_broken_answers(client.meta.events)
        answer = client.get_secret_value(SecretId=name)
    except ClientError as err:
        if error_code(err) == "ResourceNotFoundException":
            raise InvalidSettingError("COLDSTREAM_CONSOLE_SECRET", f"there is no secret {name}") from err
        raise from_aws(err, f"secret {name}") from err
    except SDK_ERRORS as err:
        raise from_aws(err, f"secret {name}") from err
    return str(answer.get("SecretString", ""))
