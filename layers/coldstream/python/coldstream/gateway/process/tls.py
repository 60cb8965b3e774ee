"""TLS on both sides: what clients are shown, and how the broker is known."""

from __future__ import annotations

import logging
import ssl

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.options import BrokerSide, ServerTls

_LOG = logging.getLogger(__name__)


class ServerCertificate:
    """What connections of clients are wrapped by, and how it is renewed. Raises InvalidSettingError."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()

    def reload(self) -> None:
        """Read certificate and key again: connections made after that are shown the new ones.

        If they are wrong, those before stay, and the log says so.
        """
        try:
            self._load()
        except InvalidSettingError as err:
            _LOG.error("the certificate cannot be read again; the one before stays", extra={"reason": str(err)})
        else:
            _LOG.info("the certificate was read again")

    def _load(self) -> None:
        files = self._tls.certificate, self._tls.private_key
        try:
            # First into a context of its own: of a pair that does not match, half would be left in the one that is
            # used.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, _passphrase)
            self.context.load_cert_chain(*files, _passphrase)
        except (OSError, ValueError) as err:  # an SSLError is an OSError
            raise InvalidSettingError("--certificate", f"{files[0]}, {files[1]}: {err}") from err


def _passphrase() -> str:
    """Refuse a key that is encrypted: without this, OpenSSL would ask whoever has the terminal, and wait."""
    raise ValueError("the private key is encrypted: give it without a passphrase")


def renewed_broker_context(broker: BrokerSide) -> ssl.SSLContext | None:
    """Read the authorities again; None if they are wrong: those before stay, and the log says so."""
    try:
        tls = broker_context(broker)
    except InvalidSettingError as err:
        _LOG.error("the broker's authorities cannot be read again; those before stay", extra={"reason": str(err)})
        return None
    _LOG.info("the broker's authorities were read again")
    return tls


def broker_context(broker: BrokerSide) -> ssl.SSLContext:
    """Return what connections to the broker are wrapped by; its certificate and name are checked.

    Raises InvalidSettingError.
    """
    try:
        return ssl.create_default_context(cafile=broker.ca)
    except (OSError, ValueError) as err:
        raise InvalidSettingError("--broker-ca", f"{broker.ca}: {err}") from err
