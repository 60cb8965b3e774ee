"""How DynamoDB says that something is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PREFIX = "com.amazonaws.dynamodb.v20120810#"
_VALIDATION_PREFIX = "com.amazon.coral.validate#"


class DynamoError(Exception):
    """An answer that says what is wrong: 400, with the error's name, its message and what belongs to it."""

    def __init__(self, name: str, message: str, prefix: str = _PREFIX, **fields: Any) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self._document = {"__type": f"{prefix}{name}", "message": message, "Message": message, **fields}

    def document(self) -> Mapping[str, Any]:
        """Return the body of the answer."""
        return self._document


class ConditionFailedError(DynamoError):
    """The condition of a write does not hold. `item` is what is there, if the request wants it back."""

    def __init__(self, item: Mapping[str, Any] | None = None) -> None:
        fields: dict[str, Any] = {} if item is None else {"Item": dict(item)}
        super().__init__("ConditionalCheckFailedException", "The conditional request failed", **fields)
        self.item = item


def invalid(message: str) -> DynamoError:
    """Return the error of a request that breaks a rule."""
    return DynamoError("ValidationException", message, _VALIDATION_PREFIX)


def cancelled(reasons: Sequence[DynamoError | None]) -> DynamoError:
    """Return the error of a transaction, which has a reason for each item, None for those that are right."""
    listed = [_reason(one) for one in reasons]
    codes = ", ".join(one["Code"] for one in listed)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return DynamoError("TransactionCanceledException", message, CancellationReasons=listed)


def _reason(error: DynamoError | None) -> dict[str, Any]:
    if error is None:
        return {"Code": "None"}
    if isinstance(error, ConditionFailedError):
        item = {} if error.item is None else {"Item": error.item}
        return {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", **item}
    return {"Code": error.name.removesuffix("Exception"), "Message": error.document()["message"]}
