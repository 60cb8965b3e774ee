"""Run template.yaml on LocalStack and DynamoDB Local: `make localstack`.

It prints the settings and commands to paste. Ctrl-C ends everything.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading

from coldstream.errors import ColdstreamError
from coldstream.local.stack import EmulatedStack
from tests.support.dynamodb_local import DynamoDBLocal, find_dynamodb_local
from tests.support.localstack import LocalStackServer, find_localstack

PORT = 8380
COMMANDS = """
.venv/bin/coldstream announce --wait tests/golden/__tracking_1795227881250770221
.venv/bin/coldstream streams
.venv/bin/coldstream describe tracking
.venv/bin/coldstream read tracking --from first --limit 3
"""


def main() -> int:
    """Run until Ctrl-C or SIGTERM. Return 1 if something is missing or fails."""
    if find_localstack() is None or find_dynamodb_local() is None:
        print("LocalStack, DynamoDB Local or its Java 17 is missing: run `make localstack`", file=sys.stderr)
        return 1
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        print("starting LocalStack and DynamoDB Local", file=sys.stderr)
        with LocalStackServer() as localstack, DynamoDBLocal() as dynamodb:
            aws = localstack.environment_of_clients(dynamodb.url)
            with EmulatedStack(inherited={**os.environ, **aws}, port=PORT) as stack:
                lines = [f"export {name}={shlex.quote(value)}" for name, value in {**aws, **stack.environment}.items()]
                print("# In another terminal, in this directory:", *lines, COMMANDS, sep="\n")
                print("# Ctrl-C here ends everything.", flush=True)
                while not stopped.wait(1):
                    for function in stack.check():
                        print(f"{function}: its process died and was restarted", file=sys.stderr)
    except ColdstreamError as err:
        print(f"localstack: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
