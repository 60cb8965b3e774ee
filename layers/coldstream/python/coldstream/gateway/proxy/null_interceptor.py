"""Nobody takes anything over: the gateway without an archive."""

from __future__ import annotations

from coldstream.gateway.ports import BrokerLink, ClientLink, Verdict


class NullInterceptor:
    """Passes everything."""

    def __init__(self, client: ClientLink | None = None, broker: BrokerLink | None = None) -> None:
        """Need neither link; it can be given as what makes interceptors."""

    def from_client(self, key: int, frame: bytes) -> bool:  # noqa: ARG002
        """Pass it on."""
        return False

    def from_broker(self, key: int, frame: bytes) -> bool:  # noqa: ARG002
        """Pass it on."""
        return False

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:  # noqa: ARG002
        """Pass it on."""
        return Verdict.PASS

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        """Never called: nothing is kept."""

    def closed(self) -> None:
        """Have nothing to end."""
