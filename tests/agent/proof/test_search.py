"""A directory is named by exactly one stream, or not yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.agent.proof.management import BrokerStream
from coldstream.agent.proof.namesakes import Namesakes
from coldstream.agent.proof.search import FoundNames, NameSearch, NoNames
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.errors import (
    BrokerRefusedError,
    LoginRefusedError,
    StreamNotFoundError,
    UnavailableError,
    VhostRefusedError,
)
from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId
from tests.support.node import Node, NodeStream


class Listed(StreamListing):
    """What a management API lists; None is no such API."""

    def __init__(self, names: list[tuple[str, str]] | None) -> None:
        super().__init__(None)
        self.names = names

    @property
    def is_available(self) -> bool:
        return self.names is not None

    async def known_since(self, since: float) -> tuple[BrokerStream, ...]:
        return tuple(BrokerStream(vhost, name) for vhost, name in self.names or ())


class Directory:
    """A directory of a node's, as an archiver has it."""

    def __init__(self, of: NodeStream) -> None:
        self.incarnation = Incarnation(of.incarnation)
        self.stream: StreamId | None = None
        self.is_live = True
        self._headers = [chunk.header for chunk in of.chunks()]
        self._of = of

    def look(self) -> None:
        self._headers = [chunk.header for chunk in self._of.chunks()]

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        return next((header for header in self._headers if header.chunk_id == chunk_id), None)

    async def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        return True

    async def user_chunks(self, turn: int) -> tuple[ChunkHeader, ChunkHeader] | None:
        return (self._headers[0], self._headers[-1 - turn // 2 % len(self._headers)]) if self._headers else None


class Broker(Node):
    """A node that refuses what it is told to."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.refuses: dict[str, Exception] = {}
        self.asked: list[tuple[str, str]] = []

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        self.asked.append((vhost, name))
        for key in (vhost, name):
            if key in self.refuses:
                raise self.refuses[key]
        return await super().probe(vhost, name, spec)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Broker]:
    node = Broker(tmp_path / "data")
    yield node
    node.close()


class Rig:
    def __init__(self, node: Broker) -> None:
        self.node = node
        self.naming = Listed([])
        self.rules = Rules()
        self.namesakes = Namesakes(node.data)

    def search(self, directory: Directory) -> NameSearch:
        return NameSearch(directory, self.node, self.naming, self.rules, self.namesakes)


@pytest.fixture
def rig(node: Broker) -> Rig:
    return Rig(node)


def twins(node: Broker) -> tuple[NodeStream, NodeStream]:
    """Two streams that are written alike, with the same chunks."""
    one, other = node.declare("orders.eu"), node.declare("orders_eu")
    for stream in (one, other):
        stream.publish(30)
    assert is_same(one.chunks()[0].header, other.chunks()[0].header)
    return one, other


def name_of(found: FoundNames | NoNames) -> str | None:
    return found.stream.name if isinstance(found, FoundNames) else None


async def test_the_one_stream_that_is_listed_and_has_the_chunk_is_it(rig, node):
    stream = node.declare("orders.eu")
    stream.publish(30)
    rig.naming.names = [("/", "orders.eu"), ("/", "invoices")]
    found = await rig.search(Directory(stream)).find()
    assert name_of(found) == "orders.eu"
    assert found.proof is not None
    assert node.asked == [("/", "orders.eu")]


async def test_nothing_is_guessed_where_there_is_a_list(rig, node):
    stream = node.declare("orders")
    stream.publish(30)
    rig.naming.names = [("/", "invoices")]
    search = rig.search(Directory(stream))
    assert name_of(await search.find()) is None
    assert node.asked == []
    assert "lists no stream that it may be" in str(search.why)


async def test_streams_that_have_the_same_chunks_are_told_apart_once_they_differ(rig, node):
    one, other = twins(node)
    directories = [Directory(one), Directory(other)]
    searches = [rig.search(directory) for directory in directories]
    rig.naming.names = [("/", "orders.eu"), ("/", "orders_eu")]
    for _ in range(3):
        assert [name_of(await search.find()) for search in searches] == [None, None]
    assert "cannot be told yet which it is of: 'orders.eu'" in str(searches[0].why)
    one.publish(10, step_ms=11)
    other.publish(10, step_ms=12)
    for directory in directories:
        directory.look()
    found = [{name_of(await search.find()) for _ in range(6)} - {None} for search in searches]
    assert found == [{"orders.eu"}, {"orders_eu"}]


async def test_a_deleted_stream_is_not_taken_for_its_twin_that_is_listed(rig, node):
    one, other = twins(node)
    deleted, left = Directory(one), Directory(other)
    searches = [rig.search(deleted), rig.search(left)]
    node.streams.pop(("/", "orders.eu")).close()  # its directory is still there
    rig.naming.names = [("/", "orders_eu")]
    assert [name_of(await search.find()) for search in searches] == [None, None]
    deleted.is_live = False
    found = await searches[1].find()
    assert name_of(found) == "orders_eu"
    left.stream = found.stream
    found = await searches[0].find()
    assert isinstance(found, NoNames)
    assert not found.is_open
    assert "deleted at the broker before its names were known" in str(searches[0].why)


async def test_a_directory_that_was_not_looked_at_yet_may_be_the_one(rig, node):
    one, other = twins(node)
    node.streams.pop(("/", "orders.eu")).close()
    rig.naming.names = [("/", "orders_eu")]
    deleted, left = Directory(one), Directory(other)
    search = rig.search(deleted)
    assert name_of(await search.find()) is None
    assert "still to be looked at" in str(search.why)
    rig.namesakes.join(left.incarnation, left)
    left.stream = StreamId("/", "orders_eu", left.incarnation)
    assert (await search.find()).is_open is False


async def test_a_stream_that_is_refused_may_be_the_one_and_that_is_told(rig, node):
    one, _ = twins(node)
    search = rig.search(Directory(one))
    rig.naming.names = [("/", "orders.eu"), ("/", "orders_eu")]
    for what, err in [
        ("orders_eu", BrokerRefusedError("no")),
        ("/", VhostRefusedError("no")),
        ("/", LoginRefusedError("no")),
        ("/", UnavailableError("down")),
    ]:
        node.refuses = {what: err}
        with pytest.raises(type(err)):
            await search.find()


async def test_what_the_rules_leave_out_is_not_asked_for(rig, node):
    stream = node.declare("orders")
    stream.publish(30)
    rig.naming.names = [("/", "orders")]
    rig.rules = Rules(exclude=("ord*",))
    assert (await rig.search(Directory(stream)).find()).state == "excluded"
    assert node.asked == []


async def test_without_a_list_a_vhost_that_is_refused_was_a_bad_guess(rig, node):
    stream = node.declare("b_c", "a")
    stream.publish(30)
    rig.naming.names = None
    node.refuses = {"a_b": VhostRefusedError("no such vhost")}
    assert name_of(await rig.search(Directory(stream)).find()) == "b_c"
    node.refuses = {"a": VhostRefusedError("no"), "a_b": VhostRefusedError("no")}
    search = rig.search(Directory(stream))
    assert name_of(await search.find()) is None
    assert "no guess at its names was right" in str(search.why)
    node.refuses = {"b_c": BrokerRefusedError("no")}
    with pytest.raises(BrokerRefusedError):
        await search.find()


async def test_without_a_list_two_guesses_in_a_vhost_that_are_both_right_are_neither(rig, node):
    one, other = twins(node)
    rig.naming.names = None
    searches = [rig.search(Directory(one)), rig.search(Directory(other))]
    assert [name_of(await search.find()) for search in searches] == [None, None]


async def test_an_empty_directory_has_no_names_to_be_searched_for(rig, node):
    directory = Directory(node.declare("orders"))
    search = rig.search(directory)
    assert (await search.find()).state == "empty"
    directory.is_live = False
    assert (await search.find()).state == "deleted"


async def test_searches_come_fast_at_first_and_rest_ever_longer(rig, node):
    stream = node.declare("orders")
    search = rig.search(Directory(stream))
    pauses = []
    for _ in range(20):
        pauses.append(search.pause_s(10.0))
        await search.find()
    assert pauses[:3] == [0.25, 0.5, 1.0]
    assert pauses[-1] == 10.0


async def test_a_stream_that_the_broker_does_not_have_is_none_of_the_candidates(rig, node):
    stream = node.declare("orders")
    stream.publish(30)
    rig.naming.names = [("/", "orders")]
    node.refuses = {"orders": StreamNotFoundError("orders")}
    assert (await rig.search(Directory(stream)).find()).is_open is False
