"""Who may send how many chunks.

A credit is one chunk. The client gives credits, and may never be sent more chunks than it gave. The broker is given
credits by the client's leave alone, and never more than a few hundred ahead: what it sends while the archive is read
has to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CreditLedger:
    """The credits of one subscription. `limit` bounds what the broker may have."""

    limit: int
    client: int = 0
    """Chunks that the client may be sent now."""
    upstream: int = 0
    """Chunks that the broker may still send."""

    def owed(self, kept: int) -> int:
        """Return how many credits to give the broker, of whose chunks so many are kept and not yet sent."""
        return max(0, min(self.client, self.limit) - self.upstream - kept)
