"""Keys of objects: the layout of the bucket.

    {prefix}{hash8}_{incarnation}/data/{first offset, 20 digits}[.{generation}].fragment
    {prefix}staging/[{cluster}/]{incarnation}/{first offset, 20 digits}-{next offset, 20 digits}.segment
    {prefix}quarantine/{incarnation}/{first offset, 20 digits}-{etag}.segment, and .json beside it with the reason

`hash8` spreads streams over S3's partitions. No vhost or stream name is ever part of a key. An incarnation is, and its
alphabet (manifest.stream) has neither "/" nor ".", so keys cannot collide or leave their prefix. The same holds for a
cluster. Its staged segments lie one level deeper than those of agents without a cluster, so that policies can tell them
apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset

_STAGED = re.compile(r"(?P<first>[0-9]{20})-(?P<next>[0-9]{20})\.segment")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one archive. `prefix` is empty or ends in a slash; `cluster` is the one that stages segments."""

    prefix: str = ""
    cluster: Cluster = NO_CLUSTER

    def fragment(self, incarnation: Incarnation, first_offset: Offset, generation: int = 0) -> str:
        """Return the key of a fragment; generation 0 is left out of it."""
        suffix = f".{generation}" if generation else ""
        return f"{self.prefix}{_hash8(incarnation)}_{incarnation}/data/{first_offset:020}{suffix}.fragment"

    def staged(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> str:
        """Return the key of a staged segment."""
        return f"{self.staging(incarnation)}{first_offset:020}-{next_offset:020}.segment"

    def staging(self, incarnation: Incarnation) -> str:
        """Return the prefix of all staged segments of an incarnation."""
        of_cluster = f"{self.cluster}/" if self.cluster else ""
        return f"{self.prefix}staging/{of_cluster}{incarnation}/"

    def staged_offsets(self, key: str) -> tuple[Offset, Offset] | None:
        """Read the first and the next offset of the segment at a key under `staging`; None for other keys."""
        match = _STAGED.fullmatch(key.rpartition("/")[2])
        return None if match is None else (Offset(int(match["first"])), Offset(int(match["next"])))

    def quarantined(self, incarnation: Incarnation, first_offset: Offset, etag: str) -> str:
        """Return the key of a segment that failed verification; the ETag tells the copies of replicas apart."""
        tag = re.sub(r"[^A-Za-z0-9-]", "", etag)[:64]
        return f"{self.prefix}quarantine/{incarnation}/{first_offset:020}-{tag}.segment"


def _hash8(incarnation: Incarnation) -> str:
    return sha256(incarnation.encode()).hexdigest()[:8]
