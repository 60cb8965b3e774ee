"""What is put between an actor and its stores to take a guard of its requests away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldstream.store.object_values import DeleteReport
from tests.explore.call_sites import Asked, place
from tests.explore.requests import Part, Request
from tests.explore.site import Ask

UNCONDITIONAL = {"put_new": "put_over", "complete_upload": "complete_over"}
"""By method of the bucket that creates and never replaces, what does the same without that condition."""


class Unmatched:
    """Leaves the condition of a request to the bucket out."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask, self._name = ask, name

    def __call__(self, request: Request) -> Any:
        what = match_of(request)
        if what and f"{what} of {Asked(place(), request).name}" == self._name:
            options = tuple((name, None if name in {"if_match", "signed_at"} else one) for name, one in request.options)
            request = replace(request, method=UNCONDITIONAL.get(request.method, request.method), options=options)
        return self._ask(request)

    def finish(self) -> None:
        """Do what is left."""


class Swapped:
    """Has one write come after the next one. A deletion of no key is none."""

    def __init__(self, ask: Ask, first: str, second: str) -> None:
        self._ask, self._first, self._second = ask, first, second
        self._held: Request | None = None

    def __call__(self, request: Request) -> Any:
        if not request.writes or request.args == ((),):
            return self._ask(request)
        name = Asked(place(), request).name
        if self._held is None:
            if name != self._first:
                return self._ask(request)
            self._held = request
            return foreseen(request)
        held, self._held = self._held, None
        if name != self._second:
            self._ask(held)
            return self(request)
        answer = self._ask(request)
        self._ask(held)
        return answer

    def finish(self) -> None:
        """Do what is left."""
        if self._held is not None:
            held, self._held = self._held, None
            self._ask(held)


class Remembering:
    """Answers what was read before as it was then."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask, self._name = ask, name
        self._known: dict[Request, Any] = {}

    def __call__(self, request: Request) -> Any:
        if request.writes or request.part > Part.BUCKET:
            return self._ask(request)
        if request in self._known and Asked(place(), request).name == self._name:
            return self._known[request]
        answer = self._known[request] = self._ask(request)
        return answer

    def finish(self) -> None:
        """Do what is left."""


def foreseen(request: Request) -> Any:
    """Return the answer that a write has as a rule."""
    match request.method:
        case "delete_many":
            return DeleteReport(request.args[0])  # type: ignore[arg-type]
        case "bind_cluster":
            return request.args[-1]
        case _:
            return None


def match_of(request: Request) -> str:
    """Return the condition of a request to the bucket, "" if it has none."""
    if request.method in UNCONDITIONAL:
        return "If-None-Match"
    given = [name for name, value in request.options if name in {"if_match", "signed_at"} and value is not None]
    return {"if_match": "If-Match", "signed_at": "the signature's time"}[given[0]] if given else ""
