"""Who may still publish by an earlier version of a map: what was seen around the change, held against what is seen now.

A producer of a super stream asks for its partitions once, when it starts. A program that connects again keeps that
list, so its connection says nothing: `client` does, which is user, host and connection name. Two programs of one host
may look like one client, and one program may have several producers. So only what is certain counts as new:

    old        every client that published to the version before until some seconds after the change (publishers show
               late), on whatever connection it comes back
    doubtful   one that came while the bindings changed, and may know an odd number of partitions; and one that shows
               a publisher on a new partition on a connection from before, so two producers share it
    unseen     one that nobody saw at the look after that, until whoever was away is back (`GONE_MS`): it may have been
               there before, or have come while the bindings changed
    proven     a connection from after the change with a publisher on a new partition; of an unseen client on each of
               them, as who knows an odd number lacks one; of a doubtful client none

An old client is gone once it has shown no publisher but on proven connections for `GONE_MS`. Clients that nobody saw
until then are new. Pure: `shards.seal` looks, and keeps this between looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from coldstream.shards.broker_port import StreamPublisher
from coldstream.units import TimestampMs

GONE_MS = 60_000
"""A program that lost its connection is back sooner: clients try every few seconds."""

MAX_BETWEEN_MS = 2 * GONE_MS
"""Two looks further apart do not show that a client was away in between."""

MAX_KNOWN = 5_000
"""Clients and connections that are kept; with more, only the operator can tell that no old producer is left."""


@dataclass(frozen=True, slots=True)
class OldClient:
    """A client that knows an earlier version, and since which look it shows nothing; None while it does.

    `is_unseen` if the look after the bindings changed did not see it where it was before.
    """

    client: str
    is_doubtful: bool = False
    absent_since: TimestampMs | None = None
    is_unseen: bool = False


@dataclass(frozen=True, slots=True)
class OldProducers:
    """What is known of the producers of the version before, at the last look.

    `connections` are those of before the change or while it went on. `is_closed` once whoever
    was away is back, so that others are new; `is_overfull` if there were more than are kept.
    """

    clients: tuple[OldClient, ...] = ()
    connections: tuple[str, ...] = ()
    looked_at: TimestampMs = TimestampMs(0)  # noqa: RUF009  a NewType is its value
    is_closed: bool = False
    is_overfull: bool = False

    @classmethod
    def before(
        cls, publishers: Iterable[StreamPublisher], connections: Collection[str], at: TimestampMs
    ) -> OldProducers:
        """Return what is seen before the first binding changes. `publishers` are those of the map's partitions."""
        clients = {one.client for one in publishers}
        return _bounded(cls(tuple(OldClient(name) for name in sorted(clients)), tuple(sorted(connections)), at))

    def during(
        self, publishers: Iterable[StreamPublisher], connections: Collection[str], at: TimestampMs
    ) -> OldProducers:
        """Add what is seen while bindings change, or shortly after: who is new may have asked meanwhile."""
        seen = tuple(publishers)
        known = set(self.connections)
        stays = {one.client for one in seen if one.connection in known}
        clients = {one.client: replace(one, is_unseen=one.is_unseen or one.client not in stays) for one in self.clients}
        for one in seen:
            if one.client not in clients or one.connection not in known:
                clients[one.client] = OldClient(one.client, is_doubtful=True)
        held = tuple(clients[name] for name in sorted(clients))
        both = tuple(sorted(known | set(connections)))
        return _bounded(replace(self, clients=held, connections=both, looked_at=at))

    def back(self, publishers: Collection[StreamPublisher], added: Collection[str]) -> OldProducers:
        """Add the clients that nobody saw before, and that are not proven: they may have been away."""
        known = {one.client for one in self.clients}
        proven = self._on_all(publishers, added)
        came = {one.client for one in publishers if one.connection not in proven} - known
        unseen = (OldClient(name, is_unseen=True) for name in sorted(came))
        return _bounded(replace(self, clients=(*self.clients, *unseen)))

    def looked(self, publishers: Collection[StreamPublisher], added: Collection[str], at: TimestampMs) -> OldProducers:
        """Return what is known after a look. `added` are the streams that only the newest version has."""
        known = set(self.connections)
        mixed = {one.client for one in publishers if one.stream in added and one.connection in known}
        doubtful = {one.client for one in self.clients if one.is_doubtful}
        marked = self
        if not mixed <= doubtful:
            clients = (replace(one, is_doubtful=True) if one.client in mixed else one for one in self.clients)
            marked = replace(self, clients=tuple(clients))
        present = {one.client for one in marked.unproven(publishers, added)}
        # Out of order, or too far apart: a client may have been there between the two.
        is_next = 0 <= at - self.looked_at <= MAX_BETWEEN_MS

        def after(one: OldClient) -> OldClient:
            since = None if one.client in present else at
            if since is not None and is_next and one.absent_since is not None:
                since = one.absent_since
            return one if one.absent_since == since else replace(one, absent_since=since)

        return replace(marked, clients=tuple(map(after, marked.clients)), looked_at=at)

    def unproven(
        self, publishers: Iterable[StreamPublisher], added: Collection[str], ended: Collection[str] = ()
    ) -> tuple[StreamPublisher, ...]:
        """Return the publishers that may be by the version before; any on a stream that `ended` is."""
        seen = tuple(publishers)
        known = set(self.connections)
        clients = {one.client: one for one in self.clients}
        on_any = {one.connection for one in seen if one.stream in added and one.connection not in known}
        on_all = self._on_all(seen, added)

        def may_be_old(one: StreamPublisher) -> bool:
            client = clients.get(one.client)
            if one.stream in ended:
                return True
            proven = on_all if client is not None and client.is_unseen else on_any
            return client is not None and (client.is_doubtful or one.connection not in proven)

        return tuple(one for one in seen if may_be_old(one))

    def not_gone(self) -> tuple[OldClient, ...]:
        """Return the clients that are not away for long enough, as of the last look."""
        return tuple(
            one for one in self.clients if one.absent_since is None or self.looked_at - one.absent_since < GONE_MS
        )

    def _on_all(self, publishers: Iterable[StreamPublisher], added: Collection[str]) -> set[str]:
        """Return the connections from after the change that have a publisher on each of the new partitions."""
        whole = set(added)
        streams: dict[str, set[str]] = {}
        for one in publishers:
            if one.stream in whole:
                streams.setdefault(one.connection, set()).add(one.stream)
        return {name for name, found in streams.items() if found == whole} - set(self.connections)


def _bounded(known: OldProducers) -> OldProducers:
    if max(len(known.clients), len(known.connections)) <= MAX_KNOWN:
        return known
    return replace(
        known, clients=known.clients[:MAX_KNOWN], connections=known.connections[:MAX_KNOWN], is_overfull=True
    )
