"""Transactions without one of their conditions, as DynamoDB would carry them out then."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from coldstream.errors import LostRaceError
from coldstream.manifest.change import Change
from coldstream.manifest.state import ManifestState, _missing_key
from coldstream.store import transaction

After = Callable[[ManifestState, Change], ManifestState]

HEAD, EVENT = "the head's revision", "the event's absence"
BOTH = f"{HEAD} and {EVENT}"


def conditions() -> list[str]:
    """Return the writes that have a condition, by name, and the two of every change, as the shipped code has them."""
    tree = ast.parse(Path(transaction.__file__).read_text())
    found = [HEAD, EVENT, BOTH]
    for case in (node for node in ast.walk(tree) if isinstance(node, ast.match_case)):
        has_one = any(isinstance(node, ast.keyword) and node.arg == "condition" for node in ast.walk(case))
        if has_one and isinstance(case.pattern, ast.MatchClass) and isinstance(case.pattern.cls, ast.Name):
            found.append(case.pattern.cls.id)
    return found


def loosened(without: str, strictly: After) -> After:
    """Return how a state changes if one condition is not asked for."""

    def after(state: ManifestState, change: Change) -> ManifestState:
        if without in {HEAD, BOTH} and state.head is not None:
            state = replace(state, head=replace(state.head, revision=change.head.revision - 1))
        if without in {EVENT, BOTH}:
            state = replace(state, events={at: one for at, one in state.events.items() if at != change.event.revision})
        loose = [write for write in change.writes if type(write).__name__ == without]
        if not loose:
            return strictly(state, change)
        strict = tuple(write for write in change.writes if write not in loose)
        made = strictly(state, replace(change, writes=strict))
        for write in loose:
            _carry_out(made, write)
        return made

    return after


def _carry_out(state: ManifestState, write: Any) -> None:
    """Write an item, whatever is there."""
    kind = type(write).__name__
    if kind.startswith("Require"):
        return
    if kind == "Relink":
        there = state.entries.get(write.next_offset)
        if there is None:
            raise LostRaceError("an update of nothing makes an item that cannot be read")
        links = {"prior_offset": write.prior_offset, "prior_timestamp": write.prior_timestamp}
        state.entries[write.next_offset] = replace(there, **links)
        return
    item = next((one for name in ("entry", "gap", "loss", "quarantine", "hold", "erasure", "tombstone")
                 if (one := getattr(write, name, None)) is not None), None)  # fmt: skip
    item = write.before if item is None else item
    items, key = _place(state, kind, item)
    if kind.startswith("Delete"):
        items.pop(key, None)
    else:
        items[key] = item


def _place(state: ManifestState, kind: str, item: Any) -> tuple[dict[Any, Any], Any]:
    match kind.removeprefix("Put").removeprefix("Replace").removeprefix("Delete"):
        case "Entry":
            return state.entries, item.next_offset
        case "Gap":
            return state.gaps, item.first_offset
        case "Hold":
            return state.holds, item.id
        case "Erasure":
            return state.erasures, item.id
        case "Tombstone":
            return state.tombstones, (item.due_at, item.key)
    return state.missing, _missing_key(item)
