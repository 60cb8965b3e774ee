"""A client that uses all subscription ids lends that of a subscription which the broker does not know yet."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import CorruptionError, UnavailableError
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import Subscribe
from coldstream.manifest.spec import FIRST, NEXT
from tests.support.made_chunks import made_chunks
from tests.support.takeover_rig import TakeoverRig, user_chunks

CHUNKS = made_chunks(20)
LENT = 77
USER = 78


async def rig_without_ids() -> TakeoverRig:
    """Have a client that uses all ids but two, and another stream."""
    rig = TakeoverRig(has_stats=False)
    for name in ("s", "hangs"):
        rig.across(CHUNKS, name, left=8, in_segment=1)
    for number in set(range(256)) - {LENT, USER}:
        rig.subscribe(number, "s", NEXT)
    await rig.run()
    return rig


def is_lent(rig: TakeoverRig) -> bool:
    """Tell whether the broker is about to be asked by the lent id."""
    bodies = [frame[4:] for frame in rig.upstream]
    asked = [Subscribe.from_body(body) for body in bodies if key_of(body)[0] == Key.SUBSCRIBE]
    return any(one.subscription_id == LENT and one.properties == {"chunk_selector": "all"} for one in asked)


async def until_lent(rig: TakeoverRig) -> None:
    while not is_lent(rig):
        assert rig.move_up() or rig.move_down()
        await rig.turn()


@pytest.mark.parametrize("then", ["nothing", "another subscription"])
@pytest.mark.parametrize("ends", ["fails", "is unsubscribed"])
def test_chunks_for_a_question_are_not_the_clients_even_if_the_lender_is_gone(ends: str, then: str) -> None:
    async def scenario() -> None:
        rig = await rig_without_ids()
        archive = rig.history.archives["/", "hangs"]
        archive.answers.clear()
        lender = rig.subscribe(LENT, "hangs", FIRST)
        await rig.turn()
        rig.subscribe(USER, "s", FIRST, 50)
        await rig.turn()
        await until_lent(rig)
        if ends == "fails":
            archive.question_error = CorruptionError("item", 0, "malformed")
            archive.answers.set()
            await rig.turn()
            assert rig.client.codes[lender] == Code.STREAM_NOT_AVAILABLE
            archive.question_error = None
        else:
            rig.unsubscribe(LENT)
            archive.answers.set()
        again = rig.subscribe(LENT, "s", FIRST, 50) if then != "nothing" else None
        await rig.run(seconds=0.3)  # who has no id left for a question asks again
        assert rig.client.chunks[USER] == user_chunks(CHUNKS)
        assert rig.client.chunks[LENT] == ([] if again is None else user_chunks(CHUNKS))
        assert (LENT in rig.broker.readers) == (LENT in rig.takeover._receivers) == (again is not None)
        rig.close()

    asyncio.run(scenario())


def test_a_lender_that_has_subscribed_lends_no_more_and_gets_its_first_chunk() -> None:
    async def scenario() -> None:
        rig = await rig_without_ids()
        rig.history.archives.pop(("/", "hangs"))
        archive = rig.history.put("/", "hangs", [])
        archive.answers.clear()
        rig.subscribe(LENT, "hangs", FIRST, 50)
        await rig.turn()
        rig.subscribe(USER, "s", FIRST, 0)
        await rig.turn()
        await until_lent(rig)
        # The lender goes on while its id is lent; all that the broker then says is there at once.
        archive.answers.set()
        await rig.turn()
        while rig.move_up():
            pass
        while rig.move_down():
            pass
        await rig.run()
        assert rig.client.chunks[LENT] == user_chunks(CHUNKS[12:])
        # Another question does not take the id.
        rig.unsubscribe(USER)
        await rig.run()
        rig.subscribe(USER, "s", FIRST, 50)
        await rig.run()
        assert rig.client.chunks[USER] == user_chunks(CHUNKS)
        assert LENT in rig.broker.readers
        rig.close()

    asyncio.run(scenario())


def test_a_lender_whose_id_is_lost_to_a_question_without_an_answer_is_refused() -> None:
    async def scenario() -> None:
        rig = await rig_without_ids()
        archive = rig.history.archives["/", "hangs"]
        archive.answers.clear()
        lender = rig.subscribe(LENT, "hangs", FIRST)
        await rig.turn()
        user = rig.subscribe(USER, "s", FIRST, 50)
        await rig.turn()
        await until_lent(rig)
        archive.chunks.clear()  # nothing more to ask for it
        archive.answers.set()
        await rig.turn()
        assert lender not in rig.client.codes
        rig.upstream.clear()
        for arrived, _ in rig.link.waiting.values():
            arrived.set_exception(UnavailableError("no answer"))
        rig.link.waiting.clear()
        await rig.run(seconds=0.1)
        assert rig.client.codes[lender] == rig.client.codes[user] == Code.STREAM_NOT_AVAILABLE
        again = rig.subscribe(LENT, "s", NEXT)
        await rig.run()
        assert again not in rig.client.codes, "chunks may still come for it"
        rig.close()

    asyncio.run(scenario())
