"""How requests are refused: the error that says why, the code that a client is told, and the answer that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StreamClosedError,
    StreamExistsError,
    UnavailableError,
)
from coldstream.gateway.frames.answers import (
    OffsetAnswer,
    PartitionsAnswer,
    ResolveOffsetSpecAnswer,
    RouteAnswer,
    SequenceAnswer,
    StreamStatsAnswer,
    plain_answer,
)
from coldstream.gateway.frames.keys import Code, Key
from coldstream.manifest.spec import AtOffset
from coldstream.units import Offset


class AloneRefusalError(ColdstreamError):
    """A request is refused with `code`; `why` is for the log."""

    def __init__(self, code: Code, why: str) -> None:
        self.code = code
        super().__init__(why)


def code_of(err: ColdstreamError) -> Code:
    """Return the code by which a client is told of an error."""
    match err:
        case AloneRefusalError():
            return err.code
        case StreamExistsError():
            return Code.STREAM_EXISTS
        case NotFoundError():
            return Code.STREAM_DOES_NOT_EXIST
        case InvalidInputError():
            return Code.PRECONDITION_FAILED
        case UnavailableError() | OutcomeUnknownError() | ConflictError() | StreamClosedError():
            return Code.STREAM_NOT_AVAILABLE
    return Code.INTERNAL_ERROR


_EMPTY: Final[Mapping[int, Callable[[int, Code], bytes]]] = {
    Key.QUERY_OFFSET: lambda asked, code: OffsetAnswer(asked, code, 0).to_bytes(),
    Key.QUERY_PUBLISHER_SEQUENCE: lambda asked, code: SequenceAnswer(asked, code, 0).to_bytes(),
    Key.ROUTE: lambda asked, code: RouteAnswer(asked, code, ()).to_bytes(),
    Key.PARTITIONS: lambda asked, code: PartitionsAnswer(asked, code, ()).to_bytes(),
    Key.STREAM_STATS: lambda asked, code: StreamStatsAnswer(asked, code, ()).to_bytes(),
    Key.RESOLVE_OFFSET_SPEC: lambda asked, code: ResolveOffsetSpecAnswer(asked, code, AtOffset(Offset(0))).to_bytes(),
}
"""Answers that have their fields also if they refuse, as a broker's have: empty, and 0."""


def refusal_of(key: int, correlation_id: int, code: Code) -> bytes:
    """Return the answer that refuses a request."""
    make = _EMPTY.get(key)
    return plain_answer(Key(key), correlation_id, code) if make is None else make(correlation_id, code)
