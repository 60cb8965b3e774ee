"""The border of this package: errors of AWS's SDK turned into coldstream's."""

from __future__ import annotations

from http import HTTPStatus

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    LoginError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    ConflictError,
    InvalidSettingError,
    OutcomeUnknownError,
    UnavailableError,
)

SDK_ERRORS = (BotoCoreError, ClientError, ResponseParserError, HTTPError)
"""The errors that a call may raise. The last two come through the SDK unchanged, when an answer breaks off or cannot be
parsed."""

_NO_CREDENTIALS = (
    CredentialRetrievalError,
    LoginError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)

NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)

EARLIER_MAY_HAVE_PASSED = "EarlierMayHavePassed"
"""What `answers` notes in the error of the last attempt, which is the one that the SDK raises."""

_NO_ANSWER = (HTTPClientError, HTTPError, IncompleteReadError, ResponseParserError, SSLError)

_DENIED = frozenset(
    {
        # Most answers have the status 401 or 403; these have 400.
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)

_TRY_LATER = frozenset(
    {
        "ConditionalRequestConflict",
        "IncompleteBody",
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "SlowDown",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
    }
)

_SETTINGS = {"NoSuchBucket": "bucket", "ResourceNotFoundException": "table"}


def from_aws(
    err: BotoCoreError | ClientError | ResponseParserError | HTTPError, call: str, *, writes: bool = False
) -> ColdstreamError:
    """Return the error to raise from `err`, which ended `call` after the SDK's own retries.

    `writes` tells that the call must not simply be repeated. Then a lost answer or a failure of the service leaves the
    outcome unknown.
    """
    message = f"{call}: {err}"
    lost = OutcomeUnknownError if writes else UnavailableError
    if isinstance(err, ClientError):
        return _from_answer(err, message, lost)
    if isinstance(err, _NO_CREDENTIALS):
        return AccessDeniedError(message)
    if isinstance(err, NoRegionError):
        return InvalidSettingError("region", "none is set: AWS_DEFAULT_REGION or a profile must say which")
    if isinstance(err, NEVER_SENT):
        return lost(message) if vars(err).get(EARLIER_MAY_HAVE_PASSED) else UnavailableError(message)
    if isinstance(err, _NO_ANSWER):
        return lost(message)
    return ColdstreamError(message)


def _from_answer(err: ClientError, message: str, lost: type[OutcomeUnknownError | UnavailableError]) -> ColdstreamError:
    code = error_code(err)
    metadata = err.response.get("ResponseMetadata", {})
    status = metadata.get("HTTPStatusCode", 0)
    if code in _SETTINGS:
        return InvalidSettingError(_SETTINGS[code], message)
    # S3 sends requests for a new bucket elsewhere for a while, and so may a proxy. The SDK does not follow.
    is_sent_elsewhere = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
    if is_try_later(code) or status == HTTPStatus.TOO_MANY_REQUESTS or is_sent_elsewhere:
        return lost(message) if metadata.get(EARLIER_MAY_HAVE_PASSED) else UnavailableError(message)
    if code in _DENIED or status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return AccessDeniedError(message)
    if code == "TransactionCanceledException":
        return ConflictError(message)
    # TransactionInProgressException: an earlier request with the same token is still being worked on, and may pass.
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or code == "TransactionInProgressException":
        return lost(message)
    return ColdstreamError(message)


def error_code(err: ClientError) -> str:
    """Return the service's code for an error; the HTTP status if the answer had no body, as after a HEAD."""
    return err.response.get("Error", {}).get("Code", "")


def is_try_later(code: str) -> bool:
    """Tell whether a code, of an error or of a cancelled transaction, means that the same call may work later."""
    return code in _TRY_LATER
