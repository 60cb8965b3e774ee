"""DynamoDB's requests for items, answered from SQLite; what is about tables is left to moto, whose tables these are."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from moto import settings
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.exceptions import ResourceNotFoundException
from moto.dynamodb.models import dynamodb_backends
from werkzeug.wrappers import Response

from coldstream.local.dynamodb.answers import DynamoError, invalid
from coldstream.local.dynamodb.capacity import consumed
from coldstream.local.dynamodb.evaluation import projected
from coldstream.local.dynamodb.expressions import Substitutes, paths_of
from coldstream.local.dynamodb.items import KeyNames, StoredItems, TableKeys, key_of
from coldstream.local.dynamodb.queries import query, scan
from coldstream.local.dynamodb.writes import prepare, write_all
from coldstream.local.request_lock import Environ, read_body

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_TARGET = "DynamoDB_20120810."
_JSON = "application/x-amz-json-1.0"
_REGION = re.compile(r"Credential=[^/]+/\d+/([a-z0-9-]+)/dynamodb/")
_MAX_GETS, _MAX_WRITES = 100, 25
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_REFUSED = {"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"}


class DynamoItems:
    """A WSGI application around moto's. It keeps no lock of its own: `request_lock` serializes its requests."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._items = StoredItems()
        self._tables: dict[str, TableKeys] = {}
        self._operations: Mapping[str, Callable[[Mapping[str, Any], _Tables], dict[str, Any]]] = {
            "GetItem": self._get,
            "BatchGetItem": self._get_batch,
            "TransactGetItems": self._get_all,
            "PutItem": lambda request, tables: self._write("Put", request, tables),
            "DeleteItem": lambda request, tables: self._write("Delete", request, tables),
            "UpdateItem": lambda request, tables: self._write("Update", request, tables),
            "BatchWriteItem": self._write_batch,
            "TransactWriteItems": self._write_all,
            "Query": lambda request, tables: query(request, tables(request["TableName"]), self._items),
            "Scan": lambda request, tables: scan(request, tables(request["TableName"]), self._items),
        }

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, or let moto do so."""
        name = environ.get("HTTP_X_AMZ_TARGET", "").removeprefix(_TARGET)
        if name in {"DeleteTable", "UpdateTable"}:
            self._forget(environ, name)
        if name not in self._operations and name not in _REFUSED:
            return self._application(environ, start_response)
        body = read_body(environ)
        if (denied := self._denied(environ)) is not None:
            return denied(environ, start_response)
        try:
            if name in _REFUSED:
                raise invalid(f"{name} is not emulated")
            status, document = HTTPStatus.OK, self._answer(name, body, environ)
        except DynamoError as err:
            status, document = HTTPStatus.BAD_REQUEST, dict(err.document())
        headers = {"x-amzn-RequestId": str(uuid.uuid4())}
        response = Response(json.dumps(document), status, headers, content_type=_JSON)
        return response(environ, start_response)

    def _denied(self, environ: Environ) -> Response | None:
        """Return moto's refusal of a request, None if it lets it pass; as a rule it does not look at rights."""
        if math.isinf(settings.INITIAL_NO_AUTH_ACTION_COUNT):
            return None
        # What moto makes of it in its own items nobody sees.
        response = Response.from_app(self._application, environ, buffered=True)
        return response if response.status_code in _DENIED else None

    def _answer(self, name: str, body: bytes, environ: Environ) -> dict[str, Any]:
        request = json.loads(body)

        def table(name: str) -> TableKeys:
            return self._table(name.rpartition("/")[2], environ)

        try:
            answer = self._operations[name](request, table)
        except KeyError as err:
            raise invalid(
                f"1 validation error detected: Value null at '{err.args[0]}': Member must not be null"
            ) from err
        return answer | consumed(name, request, answer)

    def _table(self, name: str, environ: Environ) -> TableKeys:
        place = f"{_region(environ)}/{name}"
        if place not in self._tables:
            described = self._describe(name, environ)
            indexes = {one["IndexName"]: _names(one) for one in described.get("GlobalSecondaryIndexes") or ()}
            self._tables[place] = TableKeys(place, _names(described), indexes)
        return self._tables[place]

    def _describe(self, name: str, environ: Environ) -> Mapping[str, Any]:
        # Not by a request: whoever asks for an item may lack the right to ask for a table.
        backend = dynamodb_backends[DEFAULT_ACCOUNT_ID][_region(environ)]
        try:
            found: Mapping[str, Any] = backend.describe_table(name)["Table"]
        except ResourceNotFoundException as err:
            raise DynamoError("ResourceNotFoundException", "Cannot do operations on a non-existent table") from err
        return found

    def _forget(self, environ: Environ, name: str) -> None:
        place = f"{_region(environ)}/{json.loads(read_body(environ)).get('TableName', '').rpartition('/')[2]}"
        self._tables.pop(place, None)
        if name == "DeleteTable":
            self._items.drop(place)

    def _get(self, request: Mapping[str, Any], tables: _Tables) -> dict[str, Any]:
        table, substitutes = tables(request["TableName"]), Substitutes.of(request)
        text = request.get("ProjectionExpression")
        paths = None if text is None else paths_of(text, substitutes)
        substitutes.check_used()
        found = self._items.get(table, key_of(table.own, request["Key"]))
        return {} if found is None else {"Item": found if paths is None else projected(found, paths)}

    def _get_batch(self, request: Mapping[str, Any], tables: _Tables) -> dict[str, Any]:
        asked = request["RequestItems"]
        if sum(len(one["Keys"]) for one in asked.values()) > _MAX_GETS:
            raise invalid("Too many items requested for the BatchGetItem call")
        responses = {}
        for name, one in asked.items():
            answers = [self._get({**one, "TableName": name, "Key": key}, tables) for key in one["Keys"]]
            responses[name] = [answer["Item"] for answer in answers if answer]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def _get_all(self, request: Mapping[str, Any], tables: _Tables) -> dict[str, Any]:
        return {"Responses": [self._get(one["Get"], tables) for one in request["TransactItems"]]}

    def _write(self, kind: str, request: Mapping[str, Any], tables: _Tables) -> dict[str, Any]:
        prepared = prepare(kind, request, tables(request["TableName"]), self._items)
        prepared.write(self._items)
        return prepared.answer(request.get("ReturnValues", "NONE"))

    def _write_batch(self, request: Mapping[str, Any], tables: _Tables) -> dict[str, Any]:
        asked = [(name, one) for name, some in request["RequestItems"].items() for one in some]
        if not 0 < len(asked) <= _MAX_WRITES:
            raise invalid(f"A batch has 1 to {_MAX_WRITES} writes")
        prepared = [
            prepare(kind.removesuffix("Request"), document, tables(name), self._items)
            for name, one in asked
            for kind, document in one.items()
        ]
        if len({(one.table.place, one.key) for one in prepared}) < len(prepared):
            raise invalid("Provided list of item keys contains duplicates")
        for one in prepared:
            one.write(self._items)
        return {"UnprocessedItems": {}}

    def _write_all(self, request: Mapping[str, Any], tables: _Tables) -> dict[str, Any]:
        actions = [
            (kind, document, tables(document["TableName"]))
            for one in request["TransactItems"]
            for kind, document in one.items()
        ]
        write_all(actions, self._items)
        return {}


_Tables = Callable[[str], TableKeys]


def _names(described: Mapping[str, Any]) -> KeyNames:
    names = {one["KeyType"]: one["AttributeName"] for one in described["KeySchema"]}
    return KeyNames(names["HASH"], names.get("RANGE"))


def _region(environ: Environ) -> str:
    found = _REGION.search(environ.get("HTTP_AUTHORIZATION", ""))
    return found[1] if found else "us-east-1"
