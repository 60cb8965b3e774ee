"""One stream: what is known of it, and its timeline."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from coldstream.browse.catalogue_row import row_of
from coldstream.browse.spans import BrokerOffsets
from coldstream.browse.timeline import read_timeline
from coldstream.console.page_request import PageRequest
from coldstream.console.site import Site
from coldstream.console.stream_address import path_of, text_of
from coldstream.console.timeline_drawing import draw, words_of
from coldstream.console.visitor import Visitor
from coldstream.manifest.stream import StreamId
from coldstream.web.refusal import FORBIDDEN, NO_PATH, Refusal

TABLE_SPANS = 200


def show(site: Site, asked: PageRequest) -> Response:
    """Show a stream. Cost: two Queries, and a question to a broker if one was chosen."""
    stream = site.stream_of(asked)
    probe = asked.query.get("broker")
    broker = _asked_broker(site, stream, probe)
    timeline = read_timeline(site.archive.table, stream, broker=broker)
    spans = (*timeline.coverage, *timeline.losses, *timeline.quarantines, *timeline.holds)
    return site.page(
        asked,
        "stream.html",
        stream=stream,
        head=timeline.head,
        row=row_of(timeline.head, asked.now),
        timeline=timeline,
        drawing=draw(timeline),
        spans=sorted(spans, key=lambda span: (span.first_offset, span.next_offset))[:TABLE_SPANS],
        span_count=len(spans),
        words_of=words_of,
        broker=broker,
        probe=probe,
        probes=sorted(site.archive.probes),
        can_store=_may_work_on(asked.visitor, stream),
    )


def newest(site: Site, asked: PageRequest) -> Response:
    """Lead to the newest incarnation of a stream."""
    vhost, name = (text_of(asked.request.path_params[part]) for part in ("vhost", "name"))
    if vhost is None or name is None:
        raise Refusal(NO_PATH, "no stream has such an address")
    if not asked.visitor.may_read(name):
        raise Refusal(FORBIDDEN, f"{asked.visitor.holder.name} may not see this stream")
    return RedirectResponse(path_of(site.archive.names.find(vhost, name)), HTTPStatus.SEE_OTHER)


def _asked_broker(site: Site, stream: StreamId, name: str) -> BrokerOffsets | None:
    if not name:
        return None
    probe = site.archive.probes.get(name)
    return BrokerOffsets(problem=f"no broker is called {name!r} here") if probe is None else probe(stream)


def _may_work_on(visitor: Visitor, stream: StreamId) -> bool:
    return not visitor.is_read_only and visitor.may_create and visitor.may_read(stream.name)
