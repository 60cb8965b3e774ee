"""All parsers that are fuzzed."""

from __future__ import annotations

from tests.fuzz.fuzz_target import FuzzTarget
from tests.fuzz.targets import (
    events,
    log_files,
    manifest_items,
    messages,
    notes,
    objects,
    span_objects,
    state_items,
    stream_protocol,
    texts,
)

TARGETS: dict[str, FuzzTarget] = {
    target.name: target
    for module in (
        log_files,
        objects,
        span_objects,
        messages,
        stream_protocol,
        texts,
        events,
        manifest_items,
        state_items,
        notes,
    )
    for target in module.TARGETS
}
