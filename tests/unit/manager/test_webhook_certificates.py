"""A certificate is replaced long before it ends, and never before those who call trust the next one."""

import contextlib
import ssl
import threading
import time

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.webhook import certificates
from manager.nodeside.webhook.certificate_store import Ports
from manager.nodeside.webhook.certificates import Material, Rotation
from shared.certificates import CLOCK_SKEW_SECONDS, Pair, issued
from shared.errors import InvalidInput
from shared.web.tls import Tls

NOW = 1_700_000_000.0
DAY = 86_400.0
HOSTS = ("headroom-webhook.ns.svc", "127.0.0.1")
ROTATION = Rotation()


def stored(material: Material) -> dict[str, str]:
    return {key: text for key, text in material.data().items() if text is not None}


def advanced(material: Material | None, at: float, *, published: bool = True) -> Material:
    return certificates.advanced(material, HOSTS, at, ROTATION, published=published)


@pytest.fixture(scope="module")
def first() -> Material:
    return advanced(None, NOW)


def test_a_certificate_is_good_for_a_year_for_its_hosts_and_signed_by_an_authority_that_can_do_no_more(
    first: Material,
) -> None:
    leaf, authority = x509.load_pem_x509_certificates(first.serving.chain.encode())
    leaf.verify_directly_issued_by(authority)
    assert first.serving.hosts == set(HOSTS)
    assert first.serving.begins_at == NOW - CLOCK_SKEW_SECONDS
    assert first.serving.ends_at == NOW + 365 * DAY
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)
    assert first.bundle == first.serving.authority


def test_nothing_is_done_before_two_thirds_of_the_life(first: Material) -> None:
    assert advanced(first, NOW) is first
    assert advanced(first, NOW + 240 * DAY) is first


def test_the_next_one_is_trusted_before_it_serves_and_the_one_before_stays_trusted(first: Material) -> None:
    at = NOW + 245 * DAY
    prepared = advanced(first, at)
    assert prepared.serving == first.serving
    assert prepared.upcoming is not None
    assert prepared.bundle == first.serving.authority + prepared.upcoming.authority
    assert advanced(prepared, at + ROTATION.overlap_seconds - 1) is prepared
    assert advanced(prepared, at + 30 * DAY, published=False) is prepared
    turned = advanced(prepared, at + ROTATION.overlap_seconds)
    assert turned == Material(prepared.upcoming, None, prepared.bundle)
    assert advanced(turned, at + DAY) is turned
    later = advanced(turned, at + 245 * DAY)
    assert later.upcoming is not None
    assert later.bundle == prepared.upcoming.authority + later.upcoming.authority


def test_one_that_has_ended_is_replaced_at_once_whoever_knows_of_it(first: Material) -> None:
    prepared = advanced(first, NOW + 300 * DAY)
    assert advanced(prepared, NOW + 366 * DAY, published=False).serving == prepared.upcoming
    begun = advanced(first, NOW + 366 * DAY, published=False)
    assert begun.serving.ends_at == NOW + (366 + 365) * DAY
    assert advanced(prepared, NOW + 1000 * DAY).serving.ends_at == NOW + 1365 * DAY


def test_other_hosts_need_another_certificate_at_once(first: Material) -> None:
    other = certificates.advanced(first, ("other",), NOW, ROTATION, published=True)
    assert other.serving.hosts == {"other"}


@given(st.lists(st.floats(0, 200 * DAY), max_size=12), st.booleans())
def test_whenever_someone_looks_what_serves_is_trusted_and_has_not_ended(steps: list[float], published: bool) -> None:
    at, material = NOW, advanced(None, NOW)
    for step in steps:
        at += step
        material = advanced(material, at, published=published)
        assert material.serving.authority in material.bundle
        assert material.serving.ends_at > at
        assert certificates.read(stored(material), source="S") == material


def test_what_is_stored_is_what_is_read(first: Material) -> None:
    for material in (first, advanced(first, NOW + 300 * DAY)):
        assert certificates.read(stored(material), source="S") == material
    assert certificates.read({}, source="S") is None


def broken(first: Material) -> list[tuple[dict[str, str], str]]:
    other = issued(HOSTS, NOW, ROTATION.valid_seconds)
    mixed = first.serving.chain.split("-----END CERTIFICATE-----\n")[0] + "-----END CERTIFICATE-----\n"
    return [
        ({"tls.crt": "junk"}, "tls.crt"),
        ({"tls.key": "junk"}, "tls.crt"),
        ({"tls.key": other.key}, "tls.key"),
        ({"tls.crt": mixed + other.authority}, "tls.crt"),
        ({"tls.crt": first.serving.authority * 2}, "tls.crt"),
        ({"ca.crt": other.authority}, "ca.crt"),
        ({"next.crt": other.chain}, "next.crt"),
        ({"next.crt": other.chain, "next.key": other.key}, "ca.crt"),
    ]


def test_a_secret_that_does_not_go_together_is_refused_by_key_and_never_quoted(first: Material) -> None:
    for change, field in broken(first):
        with pytest.raises(InvalidInput) as caught:
            certificates.read(stored(first) | change, source="Secret s")
        assert caught.value.field == field
        assert "PRIVATE KEY" not in str(caught.value)


def test_tls_takes_nothing_that_does_not_go_together_and_keeps_what_it_has() -> None:
    tls = Ports(Tls())
    good, other = (issued(HOSTS, time.time(), ROTATION.valid_seconds) for _ in range(2))
    tls.install(good.chain.encode(), good.key.encode(), source="s")
    expires_at = tls.expires_at
    for chain, key in ((good.chain, other.key), ("junk", good.key), (good.chain, "")):
        with pytest.raises(InvalidInput):
            tls.install(chain.encode(), key.encode(), source="s")
    assert tls.expires_at == expires_at == pytest.approx(good.ends_at)


def test_the_key_of_an_authority_is_nowhere(first: Material) -> None:
    assert stored(first)["tls.key"].count("PRIVATE KEY") == 2
    assert "PRIVATE KEY" not in first.bundle + first.serving.chain
    assert Pair(first.serving.chain, first.serving.key) == first.serving


def test_what_is_served_and_whom_to_trust_may_change_at_the_same_time() -> None:
    tls, pairs = Tls(asks_clients=True), [issued([name], time.time(), 3600) for name in ("first", "last")]
    for pair in pairs * 20:
        trusting = threading.Thread(target=tls.trust, args=(pair.authority,), kwargs={"source": "s"})
        trusting.start()
        tls.install(pair.chain.encode(), pair.key.encode(), source="s")
        trusting.join()
        assert served(tls) == pair.certificate


def served(tls: Tls) -> x509.Certificate:
    """What a handshake shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.context.wrap_bio(to_server, to_client, server_side=True)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    client = asking.wrap_bio(to_client, to_server, server_hostname="any")
    for side in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"")


def test_a_client_certificate_names_its_user_and_is_renewed_like_the_serving_one() -> None:
    user = "system:serviceaccount:ns:headroom-scheduler"

    def due(material: Material | None, at: float) -> Material:
        return certificates.advanced(material, ("headroom-scheduler",), at, ROTATION, published=True, user=user)

    began = due(None, NOW)
    leaf = began.serving.certificate
    assert [name.value for name in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [user]
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificates.read(stored(began), source="test") == began
    assert due(began, NOW + 200 * DAY) is began
    prepared = due(began, NOW + 245 * DAY)
    assert prepared.serving == began.serving
    later = due(prepared, NOW + 245 * DAY + ROTATION.overlap_seconds + CLOCK_SKEW_SECONDS)
    assert later.serving == prepared.upcoming
    assert later.bundle == prepared.bundle, "the authority before stays trusted"
