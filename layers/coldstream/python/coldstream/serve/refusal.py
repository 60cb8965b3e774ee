"""What is refused of streams, and the errors of streams as problems."""

from __future__ import annotations

from http import HTTPStatus

from coldstream.errors import (
    ExpiredEpochError,
    GapError,
    NotClosedError,
    NotRestoredError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StreamClosedError,
    StreamDeletedError,
    StreamExistsError,
    StreamNotFoundError,
)
from coldstream.resolve.problem import UNAVAILABLE, ProblemKind
from coldstream.web.refusal import ErrorKinds

STALE_PRODUCER = ProblemKind("stale-producer-epoch", HTTPStatus.FORBIDDEN, "A later epoch of the producer has begun")
NO_STREAM = ProblemKind("stream-not-found", HTTPStatus.NOT_FOUND, "There is no such stream")
READ_ONLY = ProblemKind("read-only", HTTPStatus.METHOD_NOT_ALLOWED, "The stream can only be read here")
CONFLICT = ProblemKind("conflict", HTTPStatus.CONFLICT, "The stream is not what the request takes it for")
CLOSED = ProblemKind("stream-closed", HTTPStatus.CONFLICT, "The stream is closed")
SEQUENCE_GAP = ProblemKind("producer-gap", HTTPStatus.CONFLICT, "A request of the producer is missing before this one")
OUT_OF_ORDER = ProblemKind("sequence-regression", HTTPStatus.CONFLICT, "Stream-Seq does not follow the last one")
GONE = ProblemKind("gone", HTTPStatus.GONE, "What is asked for was deleted")
ELSEWHERE = ProblemKind("served-elsewhere", HTTPStatus.SERVICE_UNAVAILABLE, "Another server has the stream; try again")
UNKNOWN_OUTCOME = ProblemKind(
    "outcome-unknown", HTTPStatus.SERVICE_UNAVAILABLE, "Whether it was appended is not known", tells=False
)

STREAM_ERRORS: ErrorKinds = (
    (StreamNotFoundError, NO_STREAM),
    (StreamDeletedError, GONE),
    (StreamExistsError, CONFLICT),
    (StreamClosedError, ELSEWHERE),
    (ExpiredEpochError, ELSEWHERE),
    (NotClosedError, ELSEWHERE),
    (OffsetOutOfRangeError, GONE),
    (GapError, GONE),
    (NotRestoredError, UNAVAILABLE),
    (OutcomeUnknownError, UNKNOWN_OUTCOME),
)
