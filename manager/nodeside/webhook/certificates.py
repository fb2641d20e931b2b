"""Which certificate the manager's ports serve, and when the next one is due.

Two thirds into the life of a certificate the next pair is made. Clients first learn to trust it (`bundle` has both
authorities), and the ports serve it once it has been published for long enough; the previous authority stays trusted
until the next rotation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from shared.certificates import CLOCK_SKEW_SECONDS, VALID_SECONDS, Pair, issued
from shared.errors import InvalidInput

CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"


@dataclass(frozen=True)
class Rotation:
    """A certificate is valid for `valid_seconds`; the next one is trusted for `overlap_seconds` before it serves.

    Every replica checks every `turn_seconds`, which must be far less than the overlap.
    """

    valid_seconds: float = VALID_SECONDS
    overlap_seconds: float = 3600.0
    turn_seconds: float = 10.0


@dataclass(frozen=True)
class Material:
    """The serving pair, the next pair, and the authorities that API servers must trust."""

    serving: Pair
    upcoming: Pair | None
    bundle: str

    def data(self) -> dict[str, str | None]:
        """The keys of the Secret; None: a key that it does not have."""
        upcoming = self.upcoming
        return {
            CERTIFICATE: self.serving.chain,
            KEY: self.serving.key,
            BUNDLE: self.bundle,
            NEXT_CERTIFICATE: None if upcoming is None else upcoming.chain,
            NEXT_KEY: None if upcoming is None else upcoming.key,
        }


def read(data: Mapping[str, str], *, source: str) -> Material | None:
    """The content of the Secret, None if empty. Raises InvalidInput if its parts do not fit together."""
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
    material: Material | None, hosts: Sequence[str], now: float, rotation: Rotation, *, published: bool, user: str = ""
) -> Material:
    """The material due at `now`; the same object when nothing is due. With a `user`, it is client certificates.

    `published`: API servers have had the whole bundle for more than a moment.
    """
    issue = partial(issued, hosts, now, rotation.valid_seconds, user)
    if material is None or material.serving.hosts != frozenset(hosts):
        return _begun(issue())
    serving, upcoming = material.serving, material.upcoming
    if upcoming is not None:
        ripe = published and now >= upcoming.begins_at + CLOCK_SKEW_SECONDS + rotation.overlap_seconds
        if ripe or now >= serving.ends_at:
            material = replace(material, serving=upcoming, upcoming=None)
        return material if material.serving.ends_at > now else _begun(issue())
    if now >= serving.ends_at:
        return _begun(issue())
    if now >= serving.begins_at + (serving.ends_at - serving.begins_at) * 2 / 3:
        upcoming = issue()
        return Material(serving, upcoming, serving.authority + upcoming.authority)
    return material


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
