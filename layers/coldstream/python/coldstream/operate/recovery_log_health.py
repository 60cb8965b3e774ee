"""The recovery log of quiet streams, as the doctor sees it: an object that nobody deletes has lost its agent."""

from __future__ import annotations

from collections import Counter

from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict
from coldstream.store.keys import Keys
from coldstream.store.parsed_keys import KeyKind
from coldstream.store.ports import ObjectStore
from coldstream.units import TimestampMs, format_timestamp

OLD_OBJECT_MS = 2 * 24 * 3600 * 1000
"""An agent deletes an object once the manifest covers it: of a quiet span of an hour, after little more than that."""

WHAT = "recovery logs have their agents"
NONE = "there are none"


def recovery_log_health(objects: ObjectStore, keys: Keys, now: TimestampMs) -> Diagnosis:
    """Return how the logs of all nodes are; `found` is NONE if there are none. Cost: one listing a thousand objects.

    Raises UnavailableError.
    """
    counts: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], TimestampMs] = {}
    for key in objects.keys(keys.all_spans):
        parsed = keys.parse(key)
        if parsed is None or parsed.kind is not KeyKind.SPAN or parsed.node is None or parsed.at is None:
            continue
        node = str(parsed.cluster), parsed.node
        counts[node] += 1
        oldest.setdefault(node, parsed.at)  # keys of a node are in the order of time
    old = [node for node, at in oldest.items() if at + OLD_OBJECT_MS <= now]
    if not old:
        found = f"{counts.total()} objects of {len(counts)} nodes" if counts else NONE
        return Diagnosis(ArchivePart.AGENTS, WHAT, DiagnosisVerdict.OK, found)
    cluster, name = min(old, key=lambda node: oldest[node])
    since = format_timestamp(oldest[cluster, name])
    found = f"the log of {len(old)} of {len(counts)} nodes is old: {name} has an object of {since}"
    option = f" --cluster {cluster}" if cluster else ""
    todo = f"coldstream agent status on {name}; if that node is lost: coldstream recover{option}"
    return Diagnosis(ArchivePart.AGENTS, WHAT, DiagnosisVerdict.WARN, found, todo)
