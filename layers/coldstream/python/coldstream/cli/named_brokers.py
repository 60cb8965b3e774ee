"""Brokers by name, as jobs name them: of options NAME=URI, and of COLDSTREAM_BROKER and COLDSTREAM_BROKER_<NAME>."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coldstream.errors import InvalidSettingError
from coldstream.live.address import BrokerAddress

DEFAULT = "default"
VARIABLE = "COLDSTREAM_BROKER"


def named_brokers(options: Iterable[str], environment: Mapping[str, str]) -> dict[str, BrokerAddress]:
    """Return the addresses by name; options come before the environment.

    Raises InvalidSettingError, which never quotes a URI: a password may be anywhere in it.
    """
    found = {}
    for variable, uri in environment.items():
        if uri and variable == VARIABLE:
            found[DEFAULT] = BrokerAddress.from_uri(uri)
        elif uri and variable.startswith(f"{VARIABLE}_"):
            found[variable.removeprefix(f"{VARIABLE}_").lower()] = BrokerAddress.from_uri(uri)
    for text in options:
        name, equals, uri = text.partition("=")
        if not (name and equals and uri):
            raise InvalidSettingError("--broker", "is not NAME=URI, such as default=rabbitmq-stream://localhost")
        found[name] = BrokerAddress.from_uri(uri)
    return found
