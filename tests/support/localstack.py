"""LocalStack: S3, SQS, EventBridge and CloudFormation that check what moto does not. No container is needed.

`make localstack` and `make test` put its open edition into .venv-localstack. Its DynamoDB and Lambda want downloads
that package registries do not serve: DynamoDB Local and `coldstream up` stand in for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.server import ROOT, Server

PYTHON = ROOT / ".venv-localstack" / "bin" / "python"


def find_localstack() -> Path | None:
    """Return the interpreter that runs it, or None where it is not installed."""
    return PYTHON if (PYTHON.parents[1] / ".ready").is_file() else None


class LocalStackServer(Server):
    """LocalStack, empty. Ready when its context is entered; takes about 2 s, and as much more at its first requests."""

    def __init__(self) -> None:
        super().__init__(ready_path="/_localstack/health")

    def command(self) -> Sequence[str]:
        return [str(PYTHON), "-m", "localstack.runtime.main"]

    def environment(self) -> Mapping[str, str]:
        return {
            "GATEWAY_LISTEN": f"127.0.0.1:{self.port}",
            "LOCALSTACK_HOST": f"127.0.0.1:{self.port}",
            # It asks nobody on the internet for anything: no certificate, no usage statistics, no names.
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "DNS_ADDRESS": "0",
            "S3_SKIP_SIGNATURE_VALIDATION": "0",  # a presigned URL grants what was signed, and nothing else
        }

    def environment_of_clients(self, dynamodb_url: str) -> dict[str, str]:
        """Return what tells an SDK to use it, and another endpoint for the table."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_url,
            "AWS_ACCESS_KEY_ID": "test",  # the only ones whose signatures it can check
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
