"""What a program does with a direct stream: it opens one, appends, reads again what it appended, and closes it."""

from __future__ import annotations

from contextlib import suppress

from coldstream.errors import ColdstreamError, StreamExistsError
from coldstream.streams import BlockingDirectStream, BlockingStreamClient, DirectArchive
from tests.faults.fault_acts import Outcome
from tests.faults.faulty_world import FaultyWorld

NAME = "notes-of-7f3a"
_BATCHES = 4


def append(world: FaultyWorld) -> Outcome:
    """Append some batches; those that were acknowledged are kept in the world, by their offsets."""
    try:
        with BlockingStreamClient(DirectArchive.from_environment()) as client:
            with suppress(StreamExistsError):  # done before, by a run that failed later
                client.create(NAME)
            stream = client.open_stream(NAME, force=True)
            for number in range(_BATCHES):
                body = b"message %d" % number
                offset = stream.append([body])
                if offset is None or offset in world.acknowledged:
                    return Outcome(b"", f"{NAME}: {body!r} was given the offset {offset}", is_typed=False)
                world.acknowledged[offset] = body
            wrong = _wrong(stream, world)
            if wrong is not None:
                return Outcome(b"", wrong, is_typed=False)
            stream.flush()
    except ColdstreamError as err:
        return Outcome(b"", f"{type(err).__name__}: {err}")
    except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
        return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)
    return Outcome(b"")


def find_appended(world: FaultyWorld) -> Outcome:
    """Have another program read the stream: it finds every acknowledged batch at its offset."""
    with BlockingStreamClient(DirectArchive.from_environment()) as client:
        stream = client.open_stream(NAME, force=True)
        return Outcome(b"", _wrong(stream, world))


def _wrong(stream: BlockingDirectStream, world: FaultyWorld) -> str | None:
    found: dict[int, object] = {}
    at = stream.start
    while at < stream.tail:
        batches = stream.fetch(at)
        if not batches:
            return f"{NAME}: nothing at {at}, though its tail is {stream.tail}"
        for batch in batches:
            if batch.base_offset != at:
                return f"{NAME}: a hole from {at} to {batch.base_offset}"
            for number, message in enumerate(batch.messages()):
                found[batch.base_offset + number] = message.body
            at = batch.next_offset
    lost = {offset: body for offset, body in world.acknowledged.items() if found.get(offset) != body}
    return f"{NAME}: lost {lost}, found {found}" if lost else None
