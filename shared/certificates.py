"""Self-made certificates: `python -m shared.certificates HOST...` prints a chain and its key as JSON.

An authority signs one certificate and is forgotten: its key is never stored.
"""

import datetime as dt
import ipaddress
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_SECONDS = 365 * 86_400.0
AUTHORITY, SUBJECT = "headroom-ca", "headroom"
CLOCK_SKEW_SECONDS = 3600.0  # a certificate is backdated by this much


@dataclass(frozen=True)
class Pair:
    """A certificate followed by its authority's (PEM), and its private key."""

    chain: str
    key: str

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificates(self.chain.encode())[0]

    @property
    def authority(self) -> str:
        return _pem(x509.load_pem_x509_certificates(self.chain.encode())[1])

    @property
    def begins_at(self) -> float:
        """Unix seconds."""
        return self.certificate.not_valid_before_utc.timestamp()

    @property
    def ends_at(self) -> float:
        """Unix seconds."""
        return self.certificate.not_valid_after_utc.timestamp()

    @property
    def hosts(self) -> frozenset[str]:
        """The names and addresses it is valid for."""
        names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = names.get_values_for_type(x509.IPAddress)
        return frozenset([*names.get_values_for_type(x509.DNSName), *map(str, addresses)])


def ends_at(chain: bytes) -> float:
    """When the first certificate (PEM) expires, in Unix seconds. Raises ValueError."""
    return x509.load_pem_x509_certificates(chain)[0].not_valid_after_utc.timestamp()


def issued(hosts: Sequence[str], now: float, valid_seconds: float, user: str = "") -> Pair:
    """A new authority, and a serving certificate that it signed; with a `user`, that user's client certificate."""
    begin = dt.datetime.fromtimestamp(now - CLOCK_SKEW_SECONDS, dt.UTC)
    end = dt.datetime.fromtimestamp(now + valid_seconds, dt.UTC)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _name(AUTHORITY)

    def certificate(subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )

    authority = (
        certificate(authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if user else ExtendedKeyUsageOID.SERVER_AUTH
    leaf = (
        certificate(_name(user or SUBJECT), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(_pem(leaf) + _pem(authority), private.decode())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


if __name__ == "__main__":
    made = issued(sys.argv[1:], time.time(), VALID_SECONDS)
    print(json.dumps({"chain": made.chain, "key": made.key}))
