"""The items of a stream's state by sort key, as the in-memory table reads them."""

from __future__ import annotations

from coldstream.manifest.state import ManifestState
from coldstream.store.memory.visibility import Items
from coldstream.store.sortkeys import (
    LOG_HEAD,
    erasure_key,
    event_key,
    gap_key,
    hold_key,
    log_key,
    missing_key,
    tombstone_key,
)


def items_of(state: ManifestState, kind: str = "") -> Items:
    """Return the items of a kind, which is how their keys begin, or all of them."""
    found: dict[str, object] = {}
    if kind in {"", "log"}:
        found |= {log_key(end): entry for end, entry in state.entries.items()}
        found |= {} if state.head is None else {LOG_HEAD: state.head}
    if kind in {"", "gap"}:
        found |= {gap_key(first): gap for first, gap in state.gaps.items()}
    if kind in {"", "event"}:
        found |= {event_key(revision): event for revision, event in state.events.items()}
    if kind in {"", "loss", "quarantine"}:
        found |= {missing_key(one): one for one in state.missing.values()}
    if kind in {"", "tombstone"}:
        found |= {tombstone_key(one): one for one in state.tombstones.values()}
    if kind in {"", "hold"}:
        found |= {hold_key(one.id): one for one in state.holds.values()}
    if kind in {"", "erasure"}:
        found |= {erasure_key(one.id): one for one in state.erasures.values()}
    return found
