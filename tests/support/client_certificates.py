"""Client certificates of a real control plane, signed by an authority of its own."""

import base64
import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.local import private

AUTHORITY = "headroom-clients"
LIFE = dt.timedelta(days=3650)
CLOCK_SKEW = dt.timedelta(hours=1)


class ClientAuthority:
    """`file` (PEM) lets an API server verify clients; `directory` keeps the authority between starts."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(private.DIRECTORY_MODE, parents=True, exist_ok=True)
        self.file, key_file = directory / "clients.crt", directory / "clients.key"
        if not self.file.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            made = _certificate(AUTHORITY, AUTHORITY, key.public_key())
            made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            private.write(key_file, _key_text(key))
            private.write(self.file, _text(made.sign(key, hashes.SHA256())))
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded

    def issued(self, user: str, group: str = "") -> tuple[str, str]:
        """A certificate for `user`, a member of `group`, and its key, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        made = _certificate(user, AUTHORITY, key.public_key(), group).add_extension(usage, critical=False)
        return _text(made.sign(self._key, hashes.SHA256())), _key_text(key)


def certificate_user(certificate: str, key: str) -> dict[str, str]:
    """The kubeconfig user that a client certificate names (PEM)."""
    encoded = (base64.b64encode(text.encode()).decode() for text in (certificate, key))
    return dict(zip(("client-certificate-data", "client-key-data"), encoded, strict=True))


def _certificate(subject: str, issuer: str, key: ec.EllipticCurvePublicKey, group: str = "") -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    organization = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([*organization, x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFE)
    )


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode()
