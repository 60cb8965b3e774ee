"""Dead letters: events that the upload function could not handle, looked at, sent back, or dropped.

A look takes nothing away. Messages are received, and so hidden from others, for as long as the look lasts, and are
made visible again at its end; if the look dies, they are visible again after `HIDDEN_S`. A letter that is sent back is
deleted from the dead-letter queue only once the other queue has taken it. If that is interrupted in between, the event
is in both queues, and handling an event twice changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.operate.letter_cause import LetterAction, LetterCause
from coldstream.operate.message_queue import MessageQueue, QueueMessage

HIDDEN_S = 120
"""How long a received message stays hidden if nobody makes it visible again."""

MAX_SEEN = 100_000
"""Letters that one look takes, at most: SQS lets 120,000 messages of a queue be hidden at a time."""

LEAST_ID = 8
"""Characters of an id that are enough to name a letter, and no fewer are: SQS's ids are random hexadecimal digits."""

DEFAULT_RATE = 10.0
"""Letters a second that are sent back: each is a segment to archive, and all of them failed before."""

Diagnosis = Callable[[QueueMessage], LetterCause]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message of the dead-letter queue, and why it is there."""

    message: QueueMessage
    cause: LetterCause


@dataclass(frozen=True, slots=True)
class LetterReport:
    """What became of letters: the ids that were sent back or dropped, and those that stay, with the reason.

    `unknown` are ids that were asked for and that no letter has.
    """

    done: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()


def dead_letters(queue: MessageQueue, diagnosis: Diagnosis, *, limit: int = MAX_SEEN) -> tuple[DeadLetter, ...]:
    """Return letters of a queue, up to `limit`, oldest first; all of them stay in it.

    Letters that somebody else is looking at are not seen. Cost: two requests for ten, beside those of `diagnosis`.
    """
    with closing(_borrowed(queue, limit)) as messages:
        found = [DeadLetter(message, diagnosis(message)) for message in messages]
    return tuple(sorted(found, key=lambda letter: (letter.message.sent_at, letter.message.id)))


def redrive(
    queue: MessageQueue,
    target: MessageQueue,
    diagnosis: Diagnosis,
    *,
    ids: Collection[str] | None = None,
    rate: float = DEFAULT_RATE,
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> LetterReport:
    """Send letters back to the queue of the upload function: those whose ids begin so, by None all that are worth it.

    Of all letters, those that would only fail again stay; one that is named by its id is sent anyway. At most `rate`
    letters a second are sent. Raises UnavailableError if a queue does not answer; what was sent by then is no longer
    among the dead letters, and repeating the call is safe.
    """
    deleted: list[str] = []

    def send(message: QueueMessage) -> str | None:
        cause = diagnosis(message)
        if ids is None and cause.action is not LetterAction.REDRIVE:
            return cause.why
        if not dry_run:
            target.send(message.body)
            _delete(queue, message)
            deleted.append(message.id)
            sleep(1 / rate)
        return None

    return _each(queue, ids, send, deleted)


def discard(
    queue: MessageQueue, diagnosis: Diagnosis, *, ids: Collection[str] | None = None, dry_run: bool = False
) -> LetterReport:
    """Drop letters for good: those whose ids begin so, by None all that nothing is left to do about.

    The segment that a letter announced stays staged. Raises UnavailableError as `redrive` does.
    """
    deleted: list[str] = []

    def drop(message: QueueMessage) -> str | None:
        cause = diagnosis(message)
        if ids is None and cause.action is not LetterAction.DISCARD:
            return cause.why
        if not dry_run:
            _delete(queue, message)
            deleted.append(message.id)
        return None

    return _each(queue, ids, drop, deleted)


def _delete(queue: MessageQueue, message: QueueMessage) -> None:
    if queue.delete([message]) != (message.id,):
        raise UnavailableError(f"queue {queue.name} did not delete message {message.id}; it is there twice, try again")


def _each(
    queue: MessageQueue,
    ids: Collection[str] | None,
    act: Callable[[QueueMessage], str | None],
    deleted: Sequence[str],
) -> LetterReport:
    """Do something with each chosen letter; `act` returns why a letter stays, None if it is done with.

    `deleted` are the ids of those that `act` deleted by now.
    """
    done: list[str] = []
    left: list[tuple[str, str]] = []
    unknown = {_checked(one) for one in ids or ()}
    with closing(_borrowed(queue, None, deleted)) as messages:
        for message in messages:
            named = {one for one in unknown if message.id.startswith(one)}
            if ids is not None and not named:
                continue
            why = act(message)
            if why is None:
                done.append(message.id)
            else:
                left.append((message.id, why))
            unknown -= named
            if ids is not None and not unknown:
                break  # no need to hide the rest from others
    return LetterReport(tuple(done), tuple(left), tuple(sorted(unknown)))


def _checked(id_: str) -> str:
    if len(id_) < LEAST_ID:
        raise InvalidInputError("id", f"{id_!r} is too short to name one letter: {LEAST_ID} characters are enough")
    return id_


def _borrowed(
    queue: MessageQueue, limit: int | None, deleted: Sequence[str] = ()
) -> Generator[QueueMessage, None, None]:
    """Yield each message once, and at the end make visible again all but those whose ids are in `deleted` by then."""
    borrowed: dict[str, QueueMessage] = {}
    again = 0
    try:
        while limit is None or len(borrowed) < limit:
            messages = queue.receive(hidden_s=HIDDEN_S)
            # Messages come again once they are visible: after so long a look, or if SQS delivers one twice. Others may
            # still come after them, until all that were seen have come again.
            new = [message for message in messages if message.id not in borrowed]
            again = 0 if new else again + len(messages)
            if not messages or again > len(borrowed):
                return
            room = len(new) if limit is None else limit - len(borrowed)
            # Without their bodies: there may be a hundred thousand. The newest receipt of each is the one that counts.
            borrowed |= {message.id: replace(message, body="") for message in messages}
            yield from new[:room]
    finally:
        gone = set(deleted)
        queue.show([message for message in borrowed.values() if message.id not in gone])
