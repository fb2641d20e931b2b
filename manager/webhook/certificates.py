"""Certificates of the webhook's own making, and when which of them is used.

An authority signs one serving certificate and is forgotten: its key is never stored. Two thirds into the life of a
certificate the next pair is made. It is trusted first (`bundle` has both authorities), and served once the API server
has been told for long enough; the authority before stays trusted until the next rotation.
"""

import datetime as dt
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.errors import InvalidInput

AUTHORITY, SUBJECT = "headroom-webhook-ca", "headroom-webhook"
CLOCK_SKEW_SECONDS = 3600.0  # a certificate is as much older than it is

CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"


@dataclass(frozen=True)
class Rotation:
    """A certificate is valid for `valid_seconds`; the next one is trusted for `overlap_seconds` before it serves.

    Everybody looks every `turn_seconds`, which has to be far less than the overlap.
    """

    valid_seconds: float = 365 * 86_400.0
    overlap_seconds: float = 3600.0
    turn_seconds: float = 10.0


@dataclass(frozen=True)
class Pair:
    """A serving certificate followed by its authority's (PEM), and its private key."""

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
        """Whom it speaks for: names and addresses."""
        names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = names.get_values_for_type(x509.IPAddress)
        return frozenset([*names.get_values_for_type(x509.DNSName), *map(str, addresses)])


@dataclass(frozen=True)
class Material:
    """All there is: what serves, what is going to, and whom API servers are to trust."""

    serving: Pair
    upcoming: Pair | None
    bundle: str

    def data(self) -> dict[str, str | None]:
        """As the Secret holds it; None: a key that it does not have."""
        upcoming = self.upcoming
        return {
            CERTIFICATE: self.serving.chain,
            KEY: self.serving.key,
            BUNDLE: self.bundle,
            NEXT_CERTIFICATE: None if upcoming is None else upcoming.chain,
            NEXT_KEY: None if upcoming is None else upcoming.key,
        }


def read(data: Mapping[str, str], *, source: str) -> Material | None:
    """What the Secret holds, None when that is nothing. Raises InvalidInput when it does not go together."""
    if not data.get(CERTIFICATE):
        return None
    serving = _pair(data, CERTIFICATE, KEY, source)
    upcoming = _pair(data, NEXT_CERTIFICATE, NEXT_KEY, source) if data.get(NEXT_CERTIFICATE) else None
    bundle = data.get(BUNDLE, "")
    lacking = [pair for pair in (serving, upcoming) if pair is not None and pair.authority not in bundle]
    if lacking:
        raise InvalidInput(source=source, field=BUNDLE, value=bundle, problem="an authority is missing in it")
    return Material(serving, upcoming, bundle)


def advanced(
    material: Material | None, hosts: Sequence[str], now: float, rotation: Rotation, *, published: bool
) -> Material:
    """What there is to be at `now`; the same object when nothing is due.

    `published`: API servers have been told of the whole bundle, and not just now.
    """
    if material is None or material.serving.hosts != frozenset(hosts):
        return _begun(issued(hosts, now, rotation))
    serving, upcoming = material.serving, material.upcoming
    if upcoming is not None:
        ripe = published and now >= upcoming.begins_at + CLOCK_SKEW_SECONDS + rotation.overlap_seconds
        if ripe or now >= serving.ends_at:
            material = replace(material, serving=upcoming, upcoming=None)
        return material if material.serving.ends_at > now else _begun(issued(hosts, now, rotation))
    if now >= serving.ends_at:
        return _begun(issued(hosts, now, rotation))
    if now >= serving.begins_at + (serving.ends_at - serving.begins_at) * 2 / 3:
        upcoming = issued(hosts, now, rotation)
        return Material(serving, upcoming, serving.authority + upcoming.authority)
    return material


def issued(hosts: Sequence[str], now: float, rotation: Rotation) -> Pair:
    """A new authority, and a serving certificate that it signed."""
    begin = dt.datetime.fromtimestamp(now - CLOCK_SKEW_SECONDS, dt.UTC)
    end = dt.datetime.fromtimestamp(now + rotation.valid_seconds, dt.UTC)
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
    serving = (
        certificate(_name(SUBJECT), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(_pem(serving) + _pem(authority), private.decode())


def _begun(pair: Pair) -> Material:
    return Material(pair, None, pair.authority)


def _pair(data: Mapping[str, str], certificate: str, key: str, source: str) -> Pair:
    pair = Pair(data[certificate], data.get(key, ""))
    try:
        leaf, authority = x509.load_pem_x509_certificates(pair.chain.encode())
        private = serialization.load_pem_private_key(pair.key.encode(), None)
        leaf.verify_directly_issued_by(authority)
        assert pair.hosts
    except InvalidSignature:
        raise InvalidInput(
            source=source, field=certificate, value="...", problem="not signed by its authority"
        ) from None
    except (ValueError, TypeError, AssertionError, x509.ExtensionNotFound) as error:
        problem = f"not a serving certificate with its authority's and its key: {error}"
        raise InvalidInput(source=source, field=certificate, value="...", problem=problem) from error
    if private.public_key() != leaf.public_key():
        raise InvalidInput(source=source, field=key, value="...", problem=f"not the key of {certificate}")
    return pair


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
