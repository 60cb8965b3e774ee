"""The audit line of each lookup and each change: who asked for what, and the outcome. It never holds a URL or a token.

The line is JSON with `"service":"coldstream-audit"`, and is written whatever the log level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.resolve.answer import Answer, Continue
from coldstream.resolve.caller import Caller
from coldstream.resolve.problem import kind_of

if TYPE_CHECKING:
    from coldstream.resolve.super_answer import SuperQuery

logger = Logger(service="coldstream-audit", level="INFO", location=None)


@dataclass(slots=True)
class AuditLine:
    """What is known of one lookup or change so far."""

    fields: dict[str, Any]

    def answered(self, answer: Answer) -> None:
        """Add the offsets of the answer: those of its ranges, and what follows them."""
        ranges = answer.ranges
        self.fields |= {
            "incarnation": answer.stream.incarnation,
            "outcome": answer.outcome,
            "ranges": len(ranges),
            "first_offset": ranges[0].first_offset if ranges else None,
            "next_offset": ranges[-1].next_offset if ranges else None,
            "gap": None if answer.gap is None else [answer.gap.first_offset, answer.gap.next_offset],
            "tail": answer.tail,
        }


@contextmanager
def audited(event: Mapping[str, Any], operation: str, *, message: str = "lookup", **query: Any) -> Iterator[AuditLine]:
    """Write the line of a lookup or a change when it ends, also if it fails: an audit looks for what was denied."""
    caller = Caller.of(event)
    line = AuditLine(
        {
            "operation": operation,
            "proof": caller.authentication,
            "principal": caller.principal,
            "issuer": caller.issuer,
            "request_id": (event.get("requestContext") or {}).get("requestId"),
            **query,
        }
    )
    status = HTTPStatus.OK
    try:
        yield line
    except Exception as err:
        status = kind_of(err).status
        raise
    finally:
        logger.info(message, status=int(status), **line.fields)


def start_text(start: OffsetSpec | Continue) -> str:
    """Describe where a lookup begins."""
    match start:
        case AtEnd(which):
            return which
        case AtOffset(offset):
            return f"offset {offset}"
        case AtTimestamp(timestamp):
            return f"timestamp {timestamp}"
        case Continue():
            return "cursor"


def super_start_text(query: SuperQuery) -> str:
    """Describe where a lookup of a sharded stream begins."""
    match query.start:
        case AtEnd() | AtTimestamp() | Continue() as start:
            return start_text(start)
        case position:
            return f"position {position}"[:1000]
