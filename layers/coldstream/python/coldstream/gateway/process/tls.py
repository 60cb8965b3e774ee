"""TLS on both sides: what clients are shown, and how the broker is known."""

from __future__ import annotations

import ssl

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.options import BrokerSide, ServerTls


def client_side_context(tls: ServerTls) -> ssl.SSLContext:
    """Return what connections of clients are wrapped by. Raises InvalidSettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, tls)
    return context


def load_certificate(context: ssl.SSLContext, tls: ServerTls) -> None:
    """Read certificate and key, also again: connections made after that are shown the new ones.

    Raises InvalidSettingError, and then the context has what it had.
    """
    try:
        # First into a context of its own: of a pair that does not match, half would be left in the one that is used.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.private_key)
        context.load_cert_chain(tls.certificate, tls.private_key)
    except (OSError, ValueError) as err:  # an SSLError is an OSError
        raise InvalidSettingError("--certificate", f"{tls.certificate}, {tls.private_key}: {err}") from err


def broker_context(broker: BrokerSide) -> ssl.SSLContext:
    """Return what connections to the broker are wrapped by; its certificate and name are checked.

    Raises InvalidSettingError.
    """
    try:
        return ssl.create_default_context(cafile=broker.ca)
    except (OSError, ValueError) as err:
        raise InvalidSettingError("--broker-ca", f"{broker.ca}: {err}") from err
