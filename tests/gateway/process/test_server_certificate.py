from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.options import ServerTls
from coldstream.gateway.process.tls import ServerCertificate
from tests.support.certificates import self_signed_pem


def encrypted(pem: Path, path: Path) -> Path:
    """Write the key of a file as one that has a passphrase."""
    key = serialization.load_pem_private_key(pem.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"geheim"),
        )
    )
    return path


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pem = self_signed_pem(tmp_path / "ours.pem")
    key = encrypted(pem, tmp_path / "key.pem")
    with pytest.raises(InvalidSettingError, match=r"--certificate: .*: the private key is encrypted"):
        ServerCertificate(ServerTls(pem, key))
    found = ServerCertificate(ServerTls(pem, pem))
    found._tls = ServerTls(pem, key)
    found.reload()
    assert caplog.messages == ["the certificate cannot be read again; the one before stays"]


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"--certificate: .*KEY_VALUES_MISMATCH"):
        ServerCertificate(ServerTls(self_signed_pem(tmp_path / "a.pem"), self_signed_pem(tmp_path / "b.pem")))
