"""Items as DynamoDB gives them, and other values that the table and the bucket keep: seeds for their parsers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator

from coldstream.jobs.job import Job
from coldstream.jobs.specs import parse_spec
from coldstream.manifest.access import Grant
from coldstream.manifest.appender import Appender
from coldstream.manifest.change import PutEntry, PutErasure, PutGap, PutHold, PutLoss, PutQuarantine, PutTombstone
from coldstream.manifest.cluster import cluster
from coldstream.manifest.policy import Policy
from coldstream.manifest.state_item import StateItem
from coldstream.store import items
from coldstream.units import TimestampMs
from tests.manifest.recorded_samples import HEADS, WRITES, change_of_writes
from tests.manifest.world import AT, STREAM

APPENDER: Appender = next(one.appender for one in reversed(HEADS) if one.appender is not None)
OPENING = APPENDER.openings[-1]


def _items() -> Iterator[items.Item]:
    model, life = items.Item, STREAM.incarnation
    for write in WRITES:
        match write:
            case PutEntry(entry):
                yield items.entry_item(model, life, entry)
            case PutGap(gap):
                yield items.gap_item(model, life, gap)
            case PutLoss(missing) | PutQuarantine(missing):
                yield items.missing_item(model, life, missing)
            case PutTombstone(grave):
                yield items.tombstone_item(model, life, grave)
            case PutHold(hold):
                yield items.hold_item(model, life, hold)
            case PutErasure(_, erasure):
                yield items.erasure_item(model, life, erasure)
            case _:
                continue
    for head in HEADS:
        yield items.head_item(model, head)
    yield items.event_item(model, change_of_writes(WRITES[:1]))
    yield items.registry_item(model, STREAM)
    yield items.binding_item(model, "/", "orders", cluster("main"))
    yield items.grant_item(model, Grant("arn:aws:iam::1:role/a", "%2F/orders*", AT))
    yield items.policy_item(model, Policy("all", "*/*", max_age_ms=86_400_000))
    yield items.cursor_item(model, "garbage", b'{"version": 1}')
    yield items.state_item(model, StateItem("#jobs", "a", 1, b"{}"))


def wire_items() -> Iterator[bytes]:
    """Yield the answers to a GetItem of each of them."""
    for item in _items():
        yield json.dumps({"Item": item.serialize()}, default=lambda data: b64encode(data).decode()).encode()


def sample_job() -> Job:
    """Return a job as it is created."""
    return Job("a" * 26, parse_spec({"kind": "scrub", "deep": True}), TimestampMs(0), "alice")
