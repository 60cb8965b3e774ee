"""Put events on an EventBridge bus."""

from __future__ import annotations

from typing import Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from coldstream.errors import UnavailableError
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, from_aws

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10
ATTEMPTS = 4
"""Of one request, by the SDK (its retry mode `standard`: exponential backoff with jitter)."""

_MALFORMED = "MalformedDetail"


class EventBus(Protocol):
    """Where announcements go."""

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        """Put one event; `detail` is JSON. Raises UnavailableError when the bus did not take it."""
        ...


class EventBridgeBus:
    """Implements `EventBus` on the bus `name`. The SDK finds region, credentials and endpoint."""

    def __init__(self, name: str) -> None:
        self._name = name
        try:
            self._client = boto3.session.Session().client(
                "events",
                config=Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                ),
            )
        except BotoCoreError as err:
            raise from_aws(err, f"client of event bus {name}") from err
        refuse_broken_answers(self._client.meta.events)

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        """Put one event. Cost: one PutEvents."""
        self._put(source, detail_type, detail)

    def check(self, *, source: str, detail_type: str) -> None:
        """Check that events may be put, by an event that the bus refuses because its detail is not JSON.

        Cost: one PutEvents. Raises as `put` does if the bus refuses it for another reason.
        """
        self._put(source, detail_type, "no JSON", may_refuse=_MALFORMED)

    def _put(self, source: str, detail_type: str, detail: str, *, may_refuse: str | None = None) -> None:
        try:
            answer = self._client.put_events(
                Entries=[{"EventBusName": self._name, "Source": source, "DetailType": detail_type, "Detail": detail}]
            )
        except SDK_ERRORS as err:
            raise from_aws(err, f"event bus {self._name}") from err
        # PutEvents answers 200 even when it took none of the events.
        if answer["FailedEntryCount"]:
            refused = answer["Entries"][0]
            if refused["ErrorCode"] != may_refuse:
                raise UnavailableError(f"event bus {self._name}: {refused['ErrorCode']}: {refused['ErrorMessage']}")
