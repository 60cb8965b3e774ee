"""Send a request to whichever target of a broker: a stream, a super stream or an exchange."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.replay.exchange import replay_to_exchange
from coldstream.replay.request import ReplayRequest
from coldstream.replay.stream import replay_to_stream
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.target import ExchangeTarget, SendOptions, StreamTarget
from coldstream.store.ports import ManifestReads, ObjectReads


def send(
    table: ManifestReads,
    objects: ObjectReads,
    request: ReplayRequest,
    target: StreamTarget | ExchangeTarget,
    *,
    options: SendOptions,
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ReplaySummary:
    """Publish what is requested, as `replay_to_stream` or `replay_to_exchange` does it."""
    if isinstance(target, ExchangeTarget):
        return replay_to_exchange(
            table, objects, request, target, options=options, on_progress=on_progress, should_stop=should_stop
        )
    return replay_to_stream(
        table, objects, request, target, options=options, on_progress=on_progress, should_stop=should_stop
    )
