"""How much a job has before it: streams, and what their heads count, in a bounded number of reads."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.store.ports import ManifestReads
from coldstream.upkeep.choice import StreamChoice

MOST_HEADS = 1000
"""Heads that are read. If there are more streams, they are counted, and what they hold is not known."""

MOST_STREAMS = 20_000


@dataclass(frozen=True, slots=True)
class Survey:
    """Streams, deleted ones included, and the fragments and bytes of the chunks of those whose heads were read.

    `is_complete` tells that those are all. With more than MOST_STREAMS, `streams` is that.
    """

    streams: int = 0
    fragments: int = 0
    data_bytes: int = 0
    is_complete: bool = True


def survey(table: ManifestReads, choice: StreamChoice, most_heads: int = MOST_HEADS) -> Survey:
    """Count what was chosen. Cost: a GetItem for each of the first `most_heads` streams, and one Query every 500."""
    streams = fragments = data_bytes = 0
    for stream in choice.iter(table):
        streams += 1
        if streams <= most_heads:
            head = table.head(stream.incarnation)
            if head is not None and not head.is_deleted:
                fragments += head.fragments
                data_bytes += head.data_bytes
        elif streams >= MOST_STREAMS:
            break
    return Survey(streams, fragments, data_bytes, streams <= most_heads)
