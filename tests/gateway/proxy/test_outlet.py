"""What is written to a socket, in which order, and who waits for it."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import ClosedLinkError
from coldstream.gateway.proxy.outlet import HIGH_WATER_BYTES, Outlet
from tests.support.written_transport import WrittenTransport


def test_small_pieces_are_written_together_and_large_ones_as_they_are() -> None:
    transport = WrittenTransport()
    large = bytes(100_000)
    Outlet(transport).send(b"a", b"b", large, b"c")
    assert transport.pieces == [b"ab", large, b"c"]
    assert transport.pieces[1] is large


async def test_what_is_sent_in_one_turn_of_the_loop_is_written_at_once_in_the_next() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    for piece in (b"a", b"b", b"c"):
        outlet.send(piece)
    assert transport.pieces == []
    await asyncio.sleep(0)
    assert transport.pieces == [b"abc"]


async def test_what_passes_through_comes_after_what_was_sent_before() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    outlet.send(b"sent")
    outlet.hold()
    outlet.write(b"passed")
    outlet.release()
    assert transport.pieces == [b"sent", b"passed"]


async def test_what_was_sent_waits_for_the_end_of_a_frame_that_passes_through() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    outlet.send(b"first")
    outlet.hold()
    outlet.write(b"the beginning, ")
    outlet.send(b"last")
    await asyncio.sleep(0)
    outlet.write(b"the end, ")
    outlet.release()
    assert transport.pieces == [b"first", b"the beginning, ", b"the end, ", b"last"]


async def test_what_was_sent_is_written_before_the_end() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    outlet.send(b"sent")
    outlet.end()
    assert transport.pieces == [b"sent"]
    await asyncio.sleep(0)
    assert transport.pieces == [b"sent"]


def test_nothing_is_written_after_the_last_frame() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    outlet.finish(b"last")
    outlet.send(b"more")
    outlet.write(b"more")
    assert transport.written == b"last"


async def test_a_socket_that_is_closing_is_not_written_to() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    transport.is_shut = True
    outlet.write(b"more")
    outlet.send(b"more")
    await asyncio.sleep(0)
    assert transport.written == b""
    assert outlet.sent_bytes == 0


def test_the_last_frame_waits_for_its_turn() -> None:
    transport = WrittenTransport()
    outlet = Outlet(transport)
    outlet.hold()
    outlet.send(b"one")
    outlet.finish(b"last")
    outlet.write(b"the end of a frame")
    outlet.release()
    outlet.write(b"more")
    assert transport.written == b"the end of a frameonelast"


def test_what_queues_for_a_place_counts_as_full() -> None:
    outlet = Outlet(WrittenTransport())
    outlet.hold()
    assert not outlet.is_full
    outlet.send(bytes(HIGH_WATER_BYTES + 1))
    assert outlet.is_full
    outlet.release()
    assert not outlet.is_full


async def test_drained_waits_until_the_socket_takes_more() -> None:
    outlet = Outlet(WrittenTransport())
    await outlet.drained()
    outlet.pause()
    waiting = asyncio.create_task(outlet.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    outlet.resume()
    await waiting


async def test_drained_raises_once_the_connection_has_ended() -> None:
    outlet = Outlet(WrittenTransport())
    outlet.pause()
    waiting = asyncio.create_task(outlet.drained())
    await asyncio.sleep(0)
    outlet.end()
    with pytest.raises(ClosedLinkError):
        await waiting
    with pytest.raises(ClosedLinkError):
        await outlet.drained()
