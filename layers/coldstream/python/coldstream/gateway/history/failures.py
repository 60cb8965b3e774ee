"""Counting the questions to table and bucket that fail."""

from __future__ import annotations

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    CorruptionError,
    GapError,
    OutcomeUnknownError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.gateway.figures import GatewayFigures


def count_failure(figures: GatewayFigures, err: ColdstreamError) -> None:
    """Count an error by its kind, unless it is an answer: that something is not archived."""
    match err:
        case GapError() | StreamNotFoundError():
            return
        case AccessDeniedError():
            kind = "denied"
        case UnavailableError() | OutcomeUnknownError():
            kind = "unavailable"
        case CorruptionError():
            kind = "corrupt"
        case _:
            kind = "other"
    figures.archive_failures_total[kind] += 1
