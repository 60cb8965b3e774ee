"""What an operator says about subscriptions that the archive serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.gateway.gap_rules import GapRules

MAX_UPSTREAM_CREDITS = 256
"""Chunks that the broker may send ahead for one subscription. They bound what is kept while the archive is read."""


@dataclass(frozen=True, slots=True)
class TakeoverOptions:
    """How subscriptions are taken over.

    `gaps` say what becomes of a subscription that meets offsets which neither broker nor archive has. `archive_wait_s`
    is how long one waits for what an agent has not archived yet, `question_s` how long the archive may take to answer a
    question that a client's request waits for.
    """

    gaps: GapRules = field(default_factory=GapRules)
    archive_wait_s: float = 60.0
    archive_poll_s: float = 1.0
    question_s: float = 8.0
    max_upstream_credits: int = MAX_UPSTREAM_CREDITS
