"""Legal holds, as garbage obeys them: what they may be about is kept."""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.garbage.looked_at import LookedAt
from coldstream.manifest.claiming import Span
from coldstream.manifest.entry import Hold
from coldstream.manifest.holding import held
from coldstream.units import MAX_OFFSET, Offset


def span_of(one: LookedAt) -> Span:
    """Return the offsets that an object may be about: most keys do not say how far their object reaches."""
    return one.first_offset, Offset(MAX_OFFSET + 1)


def is_held(holds: Iterable[Hold], one: LookedAt) -> bool:
    """Tell whether a hold may be about an object."""
    return held(holds, *span_of(one)) is not None
