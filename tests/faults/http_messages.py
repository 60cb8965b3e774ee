"""Requests and answers of AWS as they are on the wire, whole, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

END = b"\r\n\r\n"
_READS = {"GetItem", "Query", "BatchGetItem", "Scan"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; names of fields are in lower case."""

    method: str
    target: str
    fields: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        """What is asked: DynamoDB's name of it, else method and path."""
        target = self.fields.get("x-amz-target", "")
        return target.rpartition(".")[2] if target else f"{self.method} {self.target.partition('?')[0]}"

    @property
    def is_dynamodb(self) -> bool:
        """Whether DynamoDB is asked."""
        return "x-amz-target" in self.fields and "DynamoDB" in self.fields["x-amz-target"]

    @property
    def reads_object(self) -> bool:
        """Whether the bytes of an object are asked for."""
        path, _, query = self.target.partition("?")
        return self.method == "GET" and path.strip("/").count("/") > 0 and "list-type" not in query

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        if "x-amz-target" in self.fields:
            return self.operation not in _READS
        return self.method not in {"GET", "HEAD"}

    @property
    def may_be_stale(self) -> bool:
        """Whether AWS may answer with what was true a moment ago: DynamoDB's reads that are not consistent."""
        return (
            self.is_dynamodb
            and self.operation in _READS
            and b'"ConsistentRead": true' not in self.body.replace(b'":t', b'": t')
        )


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer; fields as they are written."""

    status: str
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def field(self, name: str) -> str | None:
        """Return a field, None if there is none."""
        return next((value for found, value in self.fields if found.lower() == name), None)

    def with_field(self, name: str, value: str) -> HttpAnswer:
        """Return the answer with another value of a field."""
        others = tuple(one for one in self.fields if one[0].lower() != name)
        return replace(self, fields=(*others, (name, value)))

    def to_bytes(self) -> bytes:
        """Encode it."""
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in self.fields)]
        return "\r\n".join(lines).encode("latin-1") + END + self.body


def answer(status: str, body: bytes, *fields: tuple[str, str]) -> HttpAnswer:
    """Return an answer with a body."""
    return HttpAnswer(status, (*fields, ("Content-Length", str(len(body)))), body)


def refusal(request: HttpRequest, status: str, code: str) -> HttpAnswer:
    """Return the refusal of a service in its own form: S3 speaks XML, the others JSON."""
    ids = (("x-amzn-RequestId", "of-a-test"), ("x-amz-request-id", "of-a-test"))
    if "x-amz-target" in request.fields or "x-amz-json" in request.fields.get("content-type", ""):
        body = f'{{"__type":"com.amazonaws#{code}","message":"as a test says"}}'.encode()
        return answer(
            status, body, *ids, ("Content-Type", "application/x-amz-json-1.0"), ("x-amz-crc32", str(crc32(body)))
        )
    body = f"<Error><Code>{code}</Code><Message>as a test says</Message></Error>".encode()
    body = b"" if request.method == "HEAD" else body
    return answer(status, body, *ids, ("Content-Type", "application/xml"))


def parsed(data: bytes) -> HttpRequest | None:
    """Read a request; None if it is not whole yet."""
    head, end, body = data.partition(END)
    if not end:
        return None
    line, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = line.split(" ")
    pairs = (field.partition(":") for field in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if fields.get("transfer-encoding", "").lower() == "chunked":
        whole = _unchunked(body)
        if whole is None:
            return None
        del fields["transfer-encoding"]
        return HttpRequest(method, target, fields, whole)
    size = int(fields.get("content-length", 0))
    return HttpRequest(method, target, fields, body[:size]) if len(body) >= size else None


def _unchunked(body: bytes) -> bytes | None:
    whole = bytearray()
    while True:
        line, end, body = body.partition(b"\r\n")
        if not end:
            return None
        size = int(line.split(b";")[0], 16)
        if not size:
            return bytes(whole)
        if len(body) < size + 2:
            return None
        whole += body[:size]
        body = body[size + 2 :]
