"""The series of streams as the text that Prometheus scrapes, made at once for all streams of a node.

prometheus_client makes 15 series of each stream out of 15 objects with labels of their own: 0.1 ms a stream, and a node
may have thousands. Here the labels of a stream are written once, and a sample is a name, those labels and a number. The
text is the same, in both formats that Prometheus asks for (https://prometheus.io/docs/instrumenting/exposition_formats,
https://prometheus.io/docs/specs/om/open_metrics_spec): they differ only in the names of counters' families.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.utils import floatToGoString

StreamLabels = tuple[str, str]
"""Vhost and name of a stream."""

Sample = tuple[StreamLabels, float]
Samples = list[Sample]


@dataclass(frozen=True, slots=True)
class StreamFamily:
    """A metric of streams; the samples of a counter end in `_total`."""

    name: str
    help: str
    is_counter: bool = False

    def text(self, samples: Samples, label_texts: Mapping[StreamLabels, str], *, is_openmetrics: bool) -> str:
        """Write the family in one of the two formats."""
        sample_name = f"{self.name}_total" if self.is_counter else self.name
        name = self.name if is_openmetrics else sample_name
        lines = [
            f"# HELP {name} {self.help}\n# TYPE {name} {'counter' if self.is_counter else 'gauge'}\n",
            *(f"{sample_name}{label_texts[labels]} {_number(value)}\n" for labels, value in samples),
        ]
        return "".join(lines)


class _LabelTexts(dict[StreamLabels, str]):
    """The labels of streams as they stand in a line, each written when it is first asked for."""

    def __missing__(self, labels: StreamLabels) -> str:
        vhost, stream = map(_escaped, labels)
        text = self[labels] = f'{{stream="{stream}",vhost="{vhost}"}}'
        return text


class StreamTexts:
    """The text of families, written again only if their samples changed since the last time. Not made for threads."""

    def __init__(self) -> None:
        self._labels = _LabelTexts()
        self._last: dict[tuple[StreamFamily, bool], tuple[Samples, bytes]] = {}

    def texts(self, families: Iterable[tuple[StreamFamily, Samples]], *, is_openmetrics: bool) -> list[bytes]:
        """Write each of the families in one of the two formats. Not joined: of a thousand streams that is a MB."""
        texts: list[bytes] = []
        streams = 0
        for family, samples in families:
            before, text = self._last.get((family, is_openmetrics), (None, b""))
            if samples != before:
                text = family.text(samples, self._labels, is_openmetrics=is_openmetrics).encode()
                self._last[family, is_openmetrics] = samples, text
            texts.append(text)
            streams = max(streams, len(samples))
        # Streams go: those that are here are written once more then.
        if len(self._labels) > 2 * streams:
            self._labels.clear()
        return texts


class StreamCounters:
    """Counters of streams. Not made for threads."""

    def __init__(self, helps: Mapping[str, str], prefix: str) -> None:
        self._families = {name: StreamFamily(prefix + name, text, is_counter=True) for name, text in helps.items()}
        # As samples: those of a scrape are the objects of the one before, and so compared at once.
        self._samples: dict[StreamLabels, dict[str, Sample]] = {}

    def count(self, labels: StreamLabels, increments: Mapping[str, int]) -> None:
        """Add to some counters of a stream; all others begin at 0."""
        samples = self._samples.get(labels)
        if samples is None:
            samples = self._samples[labels] = dict.fromkeys(self._families, (labels, 0))
        for name, increment in increments.items():
            samples[name] = labels, samples[name][1] + increment

    def remove(self, labels: StreamLabels) -> None:
        """Drop the series of a stream, if there are any."""
        self._samples.pop(labels, None)

    def families(self) -> Iterator[tuple[StreamFamily, Samples]]:
        """Yield each counter with its samples."""
        for name, family in self._families.items():
            yield family, [samples[name] for samples in self._samples.values()]


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@lru_cache(maxsize=1 << 14)  # most counters of most streams are 0, and what changes does so by a few
def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
