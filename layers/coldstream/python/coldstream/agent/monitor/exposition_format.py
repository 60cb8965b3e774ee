"""The format in which a client wants the metrics: Prometheus's text, or OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

OPENMETRICS_TYPE = "application/openmetrics-text"

_OPENMETRICS_END = b"# EOF\n"


@dataclass(frozen=True, slots=True)
class ExpositionFormat:
    """A format: its content type, and how prometheus_client writes it."""

    content_type: str
    encode: Callable[[Collector], bytes]

    @classmethod
    def wanted(cls, accept: str) -> Self:
        """Return the format that an Accept header asks for; Prometheus's text if it asks for none that is known."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the client names a version that is no number
            encode, content_type = choose_encoder("")
        return cls(content_type, encode)

    @property
    def is_openmetrics(self) -> bool:
        """Whether it is OpenMetrics."""
        return self.content_type.startswith(OPENMETRICS_TYPE)

    def write(self, collector: Collector, more: Iterable[bytes]) -> bytes:
        """Write a collector's metrics, and more that are text of this format already."""
        text = self.encode(collector).removesuffix(_OPENMETRICS_END)
        return b"".join((text, *more, _OPENMETRICS_END if self.is_openmetrics else b""))
