"""What people are told of a direct stream besides: who appends to it, and what was not recovered yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldstream.manifest.entry import Head


def direct_text(head: Head) -> str | None:
    """Say of a direct stream who appends to it; None for a broker's."""
    appender = head.appender
    if appender is None:
        return None
    if appender.is_sealed:
        return "sealed"
    if not appender.is_open:
        return "closed"
    last = appender.openings[-1]
    return f"epoch {last.epoch}, by {last.wal.writer} ({last.wal.kind})"


def direct_lines(head: Head) -> list[tuple[str, object]]:
    """Say what a direct stream has besides. What its writers have not flushed yet is not in the archive."""
    appender = head.appender
    if appender is None:
        return []
    lines: list[tuple[str, object]] = [("direct", direct_text(head)), ("begins at", appender.first)]
    lines += [("trimmed below", appender.start)] if appender.start > appender.first else []
    lines += [("not recovered", f"epoch {one.epoch}: {one.wal}") for one in appender.openings[:-1]]
    return lines + [("property", f"{name}: {value}") for name, value in appender.properties]
