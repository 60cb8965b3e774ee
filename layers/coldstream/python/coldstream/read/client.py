"""A client of the resolver's HTTP API."""

from __future__ import annotations

from http import HTTPStatus
from types import TracebackType
from typing import Protocol, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidSettingError,
    LogicalNameError,
    RouteNotFoundError,
    UnavailableError,
)
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.read.http import HttpClient
from coldstream.read.response import HttpResponse
from coldstream.read.signing import Signer, region_of
from coldstream.read.token import FILE_VARIABLE, VARIABLE, Token, bearer, check_may_be_sent, token_from_environment
from coldstream.resolve.answer import Answer, Continue, Description, RangesQuery
from coldstream.resolve.api import AnswerBody, DescriptionBody, ProblemBody, StreamsBody
from coldstream.resolve.problem import error_of
from coldstream.resolve.shard_api import ShardMapBody
from coldstream.resolve.super_answer import SuperAnswer, SuperQuery
from coldstream.resolve.super_api import SuperAnswerBody
from coldstream.store.ports import StreamPage

Body = TypeVar("Body", bound=BaseModel)
Value_co = TypeVar("Value_co", covariant=True)


class Valued(Protocol[Value_co]):
    """A body that may contradict itself."""

    def value(self) -> Value_co:
        """Decode the body."""


READ_TIMEOUT_S = 10.0
ATTEMPTS = 5
MAX_BODY_BYTES = 10 << 20


class ResolverClient:
    """Asks the resolver at `url`. Threads may share it.

    Requests carry `token`, or else the one of COLDSTREAM_TOKEN or COLDSTREAM_TOKEN_FILE; a token is sent only by https,
    or to this machine. Without a token, requests to a URL of API Gateway's own are signed (SigV4). With `sign` True
    they are signed for any URL, such as the API's custom domain, in `region` or else the SDK's region, and tokens in
    the environment are ignored. With `sign` False they are never signed.

    Each request is tried five times before it raises UnavailableError. AccessDeniedError comes at once, and so do the
    errors that the resolver names.
    """

    def __init__(
        self,
        url: str,
        *,
        sign: bool | None = None,
        region: str | None = None,
        token: Token | None = None,
        connections: int = 4,
    ) -> None:
        if not _is_base(url):
            raise InvalidSettingError(
                "resolver URL", f"{url!r} is not an http or https URL without a query and a fragment"
            )
        self._url = url.rstrip("/")
        if token is not None and sign:
            raise InvalidSettingError("sign", "a request carries a signature or a token, not both")
        self._token = token if token is not None or sign else token_from_environment()
        if self._token is not None:
            check_may_be_sent(url)
        is_signed = sign if sign is not None else self._token is None and region_of(url) is not None
        self._signer = Signer(region or region_of(url)) if is_signed else None
        self._http = HttpClient(connections=connections, read_timeout_s=READ_TIMEOUT_S, attempts=ATTEMPTS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every request under way, and refuse new ones."""
        self._http.close()

    def streams(self, cursor: str | None = None, limit: int | None = None, *, deleted: bool = False) -> StreamPage:
        """List a page of the streams, from `cursor` on; with `deleted`, those that are deleted as well."""
        return self._get("/streams", StreamsBody, cursor=cursor, limit=limit, deleted=_flag(deleted)).value()

    def describe(self, vhost: str, name: str, incarnation: str | None = None, *, deleted: bool = False) -> Description:
        """Describe a stream; with `deleted` and its incarnation, also a deleted one. Raises StreamNotFoundError."""
        return self._get(
            "/stream", DescriptionBody, vhost=vhost, name=name, incarnation=incarnation, deleted=_flag(deleted)
        ).value()

    def shard_map(self, vhost: str, name: str) -> ShardMap | None:
        """Return the map of a logical name, None if there is none: also of a resolver that knows no logical names."""
        try:
            return self._value("/super", self._get("/super", ShardMapBody, vhost=vhost, name=name))
        except (LogicalNameError, RouteNotFoundError):
            return None

    def ranges(self, query: RangesQuery) -> Answer:
        """Resolve a query. Raises StreamNotFoundError, InvalidQueryError."""
        body = self._get(
            "/ranges",
            AnswerBody,
            vhost=query.vhost,
            name=query.name,
            incarnation=query.incarnation,
            **_start(query.start),
            max_ranges=query.bounds.max_ranges,
            max_bytes=query.bounds.max_bytes,
            range_bytes=query.bounds.range_bytes,
            precise=_flag(query.precise),
        )
        return self._value("/ranges", body)

    def super_ranges(self, query: SuperQuery) -> SuperAnswer:
        """Resolve a query for a sharded stream. Raises LogicalNameError, InvalidQueryError."""
        body = self._get(
            "/ranges",
            SuperAnswerBody,
            vhost=query.vhost,
            super=query.name,
            **_start(query.start),
            order=query.order,
            max_ranges=query.bounds.max_ranges,
            max_bytes=query.bounds.max_bytes,
            range_bytes=query.bounds.range_bytes,
            precise=_flag(query.precise),
        )
        return self._value("/ranges", body)

    def _value(self, path: str, body: Valued[Value_co]) -> Value_co:
        try:
            return body.value()
        except (ValueError, ColdstreamError) as err:
            # Retryable, as the next answer may be whole: something between here and the resolver spoiled this one.
            raise UnavailableError(f"the answer of {self._url}{path} contradicts itself: {err}") from err

    def _get(self, path: str, model: type[Body], **parameters: str | int | None) -> Body:
        given = {name: value for name, value in parameters.items() if value is not None}
        # Encoded as SigV4's canonical form has it (%20, %2F): botocore signs the query as it stands here, and API
        # Gateway refuses the signature of any other form.
        url = f"{self._url}{path}?{urlencode(given, quote_via=quote, safe='')}"

        def headers() -> dict[str, str]:
            headers = {"Accept": "application/json"}
            if self._token is not None:
                headers["Authorization"] = bearer(self._token)
            elif self._signer is not None:
                headers |= self._signer.headers(url)
            return headers

        def read(response: HttpResponse) -> Body:
            # Bounded: whatever answers at this URL need not be a resolver. What is cut off here is no JSON, so it
            # raises below, and the connection is not used again.
            content = response.read(MAX_BODY_BYTES)
            if response.status != HTTPStatus.OK:
                err = _error(response.status, content, self._url + path)
                if response.status == HTTPStatus.UNAUTHORIZED and self._token is None:
                    raise AccessDeniedError(f"{err}; if it needs a token, set {VARIABLE} or {FILE_VARIABLE}") from err
                raise err
            try:
                return model.model_validate_json(content)
            except ValidationError as err:
                # Not retryable: a page of something else, such as the login of a proxy, stays what it is.
                raise InvalidSettingError(
                    "resolver URL", f"{self._url}{path} does not answer as a resolver does"
                ) from err

        return self._http.get(url, headers, read)


def _start(start: OffsetSpec | ShardPosition | Continue) -> dict[str, str | int]:
    """Return the parameter for where an answer begins."""
    match start:
        case AtEnd(which):
            return {"spec": which}
        case AtOffset(offset):
            return {"offset": offset}
        case AtTimestamp(timestamp):
            return {"timestamp": timestamp}
        case ShardPosition():
            return {"position": str(start)}
        case Continue(cursor):
            return {"cursor": cursor}


def _flag(value: bool) -> str | None:  # noqa: FBT001  the value of a parameter, which is left out if it is false
    return "true" if value else None


def _is_base(url: str) -> bool:
    """Tell whether paths can be appended to a URL."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not close, a port past 65535
        return False
    return bool(is_server) and not parts.query and not parts.fragment


def _error(status: int, content: bytes, url: str) -> ColdstreamError:
    """Return the error that a response stands for: the resolver's own, or one of whatever answers in front of it."""
    try:
        return error_of(ProblemBody.model_validate_json(content).value())
    except ValidationError:
        words = f"{url} answered {status}: {content[:200].decode(errors='replace')}"
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return AccessDeniedError(words)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return UnavailableError(words)
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return UnavailableError(words)
        case _:
            return InvalidSettingError("resolver URL", words)
