"""The server of streams, without its sockets: a stream is created, messages are posted, each once, and read again."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

import httpx

from coldstream.errors import ColdstreamError
from coldstream.streams import DirectArchive
from tests.faults.fault_acts import Outcome
from tests.faults.faulty_world import FaultyWorld
from tests.support.serving import asgi_client, hosting

_FAILED = str(int(HTTPStatus.INTERNAL_SERVER_ERROR))
_PATH = "/v1/stream/served-of-7f3a"
_BODIES = [b"message %d;" % number for number in range(4)]


def post_and_read(world: FaultyWorld) -> Outcome:
    """Post some messages, by a producer who repeats what was not acknowledged; then read all of them."""
    world.entered.add("serve")
    logged = _Logged()
    logging.getLogger("coldstream").addHandler(logged)
    try:
        problem = asyncio.run(_post_and_read(world))
    except ColdstreamError as err:
        return Outcome(b"", f"{type(err).__name__}: {err}")
    except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
        return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)
    finally:
        logging.getLogger("coldstream").removeHandler(logged)
    if problem is None or not problem.startswith(("wrong", _FAILED)):
        return Outcome(b"", problem, is_public=True)
    # As a function does: a client is told no names, the log has them.
    is_typed = bool(logged.errors) and not logged.has_unexpected
    return Outcome(b"", f"{problem} {logged.errors}", is_typed and not problem.startswith("wrong"))


class _Logged(logging.Handler):
    """Keeps what the server's log says of errors; those that nobody expected have their traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.has_unexpected = False

    def emit(self, record: logging.LogRecord) -> None:
        self.has_unexpected |= bool(record.exc_info)
        if hasattr(record, "error"):
            self.errors.append(record.error)


async def _post_and_read(world: FaultyWorld) -> str | None:
    async with hosting(DirectArchive.from_environment()) as (_, app), asgi_client(app) as client:
        answer = await client.put(_PATH, headers={"Content-Type": "text/plain"})
        if answer.is_error:
            return _told(answer)
        for number, body in enumerate(_BODIES):
            producer = {"Producer-Id": "a-producer", "Producer-Epoch": "0", "Producer-Seq": str(number)}
            answer = await client.post(_PATH, content=body, headers={"Content-Type": "text/plain", **producer})
            if answer.is_error:
                return _told(answer)
            world.acknowledged[number] = body
        return await _wrong(client, b"".join(_BODIES))


def find_posted(world: FaultyWorld) -> Outcome:
    """Have another server give the stream: it has all that was acknowledged, each message once, in order."""

    async def find() -> str | None:
        async with hosting(DirectArchive.from_environment()) as (_, app), asgi_client(app) as client:
            return await _wrong(client, b"".join(world.acknowledged[number] for number in sorted(world.acknowledged)))

    return Outcome(b"", asyncio.run(find()))


async def _wrong(client: httpx.AsyncClient, expected: bytes) -> str | None:
    answer = await client.get(_PATH, params={"offset": "-1"})
    if answer.is_error:
        return _told(answer)
    return None if answer.content == expected else f"wrong: {answer.content!r} instead of {expected!r}"


def _told(answer: httpx.Response) -> str:
    return f"{answer.status_code}: {answer.text}"
