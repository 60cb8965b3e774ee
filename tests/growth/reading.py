"""A reader that may be killed: `python -m tests.growth.reading LOG STREAM RESOLVER BROKER`.

It appends a line for each message: its position after it, and what is before the colon in it. Started again, it goes on
after the last line. A message that was given without a position is read again, as a program that is told none does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import coldstream

NO_POSITION = "-"


@dataclass(frozen=True, slots=True)
class Line:
    """What was given: which message of which key, by which instance of its producer, and the position after it."""

    position: str
    key: str
    number: int
    instance: str


def lines_of(log: Path) -> list[Line]:
    """Return the lines of a log that are complete; those at its end that have no position are read again."""
    text = log.read_text() if log.exists() else ""
    complete = [line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines()]
    while complete and complete[-1][0] == NO_POSITION:
        complete.pop()
    return [Line(position, *_message(head)) for position, head in complete]


def _message(head: str) -> tuple[str, int, str]:
    key, number, instance = head.split("/")
    return key, int(number), instance


async def read(log: Path, stream: str, resolver: str, broker: str) -> None:
    """Read without end."""
    held = lines_of(log)
    start = coldstream.ShardPosition.from_text(held[-1].position) if held else coldstream.FIRST
    kept = "".join(f"{line.position}\t{line.key}/{line.number}/{line.instance}\n" for line in held)
    whole = log.with_suffix(".whole")
    whole.write_text(kept)
    whole.replace(log)
    with log.open("ab", buffering=0) as file:
        async with coldstream.Consumer(stream, start, resolver=resolver, broker=broker, order="key") as consumer:
            async for message in consumer.messages():
                assert isinstance(message.body, bytes)
                head = message.body.partition(b":")[0].decode()
                position = consumer.position
                # One write: whoever kills this finds all of the line, or none of it is told.
                file.write(f"{NO_POSITION if position is None else position}\t{head}\n".encode())


if __name__ == "__main__":
    os.setsid()
    asyncio.run(read(Path(sys.argv[1]), *sys.argv[2:]))
