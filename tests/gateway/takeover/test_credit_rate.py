"""How often the broker is given credits while it serves a client that gave more than the broker may have."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.manifest.spec import NEXT
from tests.support.made_chunks import made_chunk
from tests.support.takeover_rig import TakeoverRig


@pytest.mark.parametrize(("limit", "most"), [(256, 4), (64, 16), (1, 500)])
def test_a_large_credit_goes_to_the_broker_by_halves_of_what_it_may_have(limit: int, most: int) -> None:
    async def scenario() -> None:
        rig = TakeoverRig(options=TakeoverOptions(max_upstream_credits=limit))
        log = rig.broker.declare("s")
        rig.subscribe(1, "s", NEXT, credit=1000)
        await rig.run()
        given = 0
        for _ in range(500):
            log.append(made_chunk(log.next_offset))
            rig.broker.dispatch()
            while rig.move_down():
                pass
            given += sum(key_of(frame[4:])[0] == Key.CREDIT for frame in rig.upstream)
            while rig.move_up():
                pass
        assert len(rig.client.chunks[1]) == 500
        assert 0 < given <= most
        rig.close()

    asyncio.run(scenario())
