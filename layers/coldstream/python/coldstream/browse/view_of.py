"""A message's view, from its bytes and its place. Nothing that a message holds makes this fail."""

from __future__ import annotations

from coldstream.browse.body_view import BodyView
from coldstream.browse.limits import ViewLimits
from coldstream.browse.message_view import MessageView, SectionView
from coldstream.browse.placed import PlacedMessage
from coldstream.browse.sections_view import cut_body, raw_body, section_views, whole_body
from coldstream.errors import BadMagicError, CorruptionError
from coldstream.format.amqp.sections import locate
from coldstream.format.chunk import ChunkHeader
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.manifest.entry import FragmentEntry

NOT_AMQP = "not an AMQP 1.0 message"


def view_of(message: PlacedMessage, header: ChunkHeader, entry: FragmentEntry, limits: ViewLimits) -> MessageView:
    """Return the view of a message of a chunk of a fragment. Cost: no request."""
    raw = bytes(message.raw)
    sections: tuple[SectionView, ...] = ()
    body: BodyView | None = None
    problem = message.problem
    if problem is None:
        source = f"message at offset {message.offset}"
        try:
            located = locate(raw, source=source)
            sections = section_views(raw, located, limits, source=source)
            body = whole_body(raw, located, source=source)
        except BadMagicError:
            body, problem = raw_body(raw), NOT_AMQP
        except CorruptionError as err:
            body, problem = raw_body(raw), str(err)
    return MessageView(
        offset=message.offset,
        chunk_id=header.chunk_id,
        timestamp=header.timestamp,
        entry=message.place,
        key=entry.key,
        generation=entry.generation,
        raw_bytes=len(raw),
        sections=sections,
        body=cut_body(body, limits),
        is_erased=entry.erased and raw == ERASED_MESSAGE,
        problem=problem,
    )
