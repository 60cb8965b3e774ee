"""The brokers that a worker knows, by name: jobs name them, and have neither address nor password."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from coldstream.errors import InvalidInputError, InvalidSettingError
from coldstream.live.address import BrokerAddress
from coldstream.replay.amqp_errors import amqp_parameters

DEFAULT = "default"
VARIABLE = "COLDSTREAM_BROKER"
AMQP_VARIABLE = "COLDSTREAM_AMQP_BROKER"
MANAGEMENT_VARIABLE = "COLDSTREAM_MANAGEMENT"

_STREAM = ("rabbitmq-stream", "rabbitmq-stream+tls")
_AMQP = ("amqp", "amqps")
_MANAGEMENT = ("http", "https")


@dataclass(frozen=True, slots=True)
class BrokerBook:
    """The URIs of each broker: of the stream protocol, of AMQP 0.9.1, of the management API. All have passwords."""

    streams: Mapping[str, str] = field(default_factory=dict, repr=False)
    amqp: Mapping[str, str] = field(default_factory=dict, repr=False)
    management: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, options: Iterable[str], environment: Mapping[str, str]) -> BrokerBook:
        """Read NAME=URI options, and the environment: COLDSTREAM_BROKER and COLDSTREAM_BROKER_<NAME>; options count.

        A name may be given once for each protocol; the URI says which. Raises InvalidSettingError, which never quotes
        a URI.
        """
        book: dict[str, dict[str, str]] = {"stream": {}, "amqp": {}, "management": {}}
        for variable, uri in environment.items():
            name = _name_of(variable)
            if name is not None and uri:
                book[_protocol_of(variable, uri)][name] = uri
        for text in options:
            name, equals, uri = text.partition("=")
            if not (name and equals and uri):
                raise InvalidSettingError("--broker", "is not NAME=URI, such as default=rabbitmq-stream://localhost")
            book[_protocol_of("--broker", uri)][name] = uri
        return cls(book["stream"], book["amqp"], book["management"])

    def stream_uri(self, name: str) -> str:
        """Return the URI of a broker's stream protocol. Raises InvalidInputError, which says how to give it."""
        return _find(self.streams, name, "rabbitmq-stream://…")

    def amqp_uri(self, name: str) -> str:
        """Return the URI of a broker's AMQP 0.9.1. Raises InvalidInputError."""
        return _find(self.amqp, name, "amqp://…")

    def management_url(self, name: str) -> str | None:
        """Return the URL of a broker's management API, None if the worker knows none."""
        return self.management.get(name)


def _name_of(variable: str) -> str | None:
    if variable in {VARIABLE, AMQP_VARIABLE, MANAGEMENT_VARIABLE}:
        return DEFAULT
    for first in (VARIABLE, AMQP_VARIABLE, MANAGEMENT_VARIABLE):
        if variable.startswith(f"{first}_"):
            return variable.removeprefix(f"{first}_").lower()
    return None


def _protocol_of(place: str, uri: str) -> str:
    scheme = urlsplit(uri.strip()).scheme.lower()
    if scheme in _STREAM:
        BrokerAddress.from_uri(uri)
        return "stream"
    if scheme in _AMQP:
        amqp_parameters(uri)
        return "amqp"
    if scheme in _MANAGEMENT:
        return "management"
    schemes = ", ".join(f"{name}://" for name in (*_STREAM, *_AMQP, *_MANAGEMENT))
    raise InvalidSettingError(place, f"is the URI of no broker: it begins with none of {schemes}")


def _find(uris: Mapping[str, str], name: str, form: str) -> str:
    uri = uris.get(name)
    if uri is None:
        known = ", ".join(sorted(uris)) or "none"
        raise InvalidInputError(
            "broker",
            f"{name!r} is not known to this worker by {form}: give it --broker {name}={form}; it knows {known}",
        )
    return uri
