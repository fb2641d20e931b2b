"""The page behind the real oauth2-proxy, with the flags that the docs name: it sends on each person's own ID token."""

import contextlib
import os
import re
import shlex
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from deploy.local import ports
from deploy.local.ports import LOOPBACK
from shared import names
from tests.apiserver import binaries
from tests.apiserver.binaries import Unavailable
from tests.integration.manager.conftest import Cluster, StartGuarded
from tests.integration.manager.guarded import Guarded, ensure
from tests.integration.manager.test_access import BINDINGS
from tests.support import PATIENCE_SECONDS, browser, eventually
from tests.support.apiserver import ROOT, ApiServer, RealApiServer
from tests.support.browser import Browser, Page
from tests.support.certificates import sign_certificates
from tests.support.identity_provider import IdentityProvider
from tests.support.local_http import LOCAL_HTTP
from tests.support.programs import do_without

pytestmark = pytest.mark.real_only("the embedded API server knows no identity provider")

DOCS = ROOT / "docs" / "how-to" / "access.md"
CLIENT, GROUP = "headroom-page", "sre"
READER, STRANGER = "reader@example.com", "stranger@example.com"
NODES_PATH = "/api/v1/nodes"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("provider")
    sign_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def provider(certificates: Path) -> Iterator[IdentityProvider]:
    found = IdentityProvider((certificates / "server.crt", certificates / "server.key"), CLIENT)
    yield found
    found.close()


@pytest.fixture(scope="module")
def process(
    provider: IdentityProvider, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """With the provider's ID tokens as credentials."""
    flags = {"issuer-url": provider.url, "client-id": CLIENT, "ca-file": certificates / "ca.crt"}
    flags |= {"username-claim": "email", "groups-claim": "groups"}
    server = RealApiServer(tmp_path_factory.mktemp("oidc"), [f"--oidc-{name}={value}" for name, value in flags.items()])
    yield server
    server.close()


@pytest.fixture
def guarded(start_guarded: StartGuarded) -> Guarded:
    """At an address that its certificate has, and whose readers are a group of the provider."""
    found = start_guarded(write_rule="upstream", webhook_hosts=(LOOPBACK, names.MANAGER_SERVER_NAME))
    ensure(
        found.server.client(),
        BINDINGS,
        "ClusterRoleBinding",
        "headroom-proxied-readers",
        roleRef={"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "headroom-reader"},
        subjects=[{"apiGroup": BINDINGS.group, "kind": "Group", "name": GROUP}],
    )
    eventually(lambda: serves_what_is_published(found))
    return found


def serves_what_is_published(guarded: Guarded) -> bool:
    """Whether the ConfigMap has the authority of the certificate that the manager serves."""
    try:
        return httpx.get(
            f"{guarded.url}/healthz", verify=ssl.create_default_context(cadata=guarded.authorities())
        ).is_success
    except (ssl.SSLError, httpx.TransportError):
        return False


@dataclass(frozen=True)
class Proxy:
    """oauth2-proxy at `url`, whose people sign in at `provider`."""

    url: str
    provider: IdentityProvider
    trusted: ssl.SSLContext

    @contextlib.contextmanager
    def signed_in(self, person: str, *groups: str) -> Iterator[httpx.Client]:
        """A client with the session of this person."""
        self.provider.person, self.provider.groups = person, groups
        with httpx.Client(base_url=self.url, verify=self.trusted, trust_env=False, timeout=PATIENCE_SECONDS) as http:
            assert http.get("/", follow_redirects=True).url.host == LOOPBACK
            assert http.cookies
            yield http


@pytest.fixture
def proxy(guarded: Guarded, provider: IdentityProvider, certificates: Path, tmp_path: Path) -> Iterator[Proxy]:
    try:
        program = binaries.built_once(binaries.OAUTH2_PROXY, os.environ)
    except Unavailable as error:
        do_without(str(error))
    for name, content in (("ca.crt", guarded.authorities()), ("client-secret", "secret"), ("cookie-secret", "0" * 32)):
        (tmp_path / name).write_text(content)
    url = f"http://{LOOPBACK}:{ports.free()}"
    places = {
        "https://ISSUER": provider.url,
        "https://headroom.example.com": url,
        "https://headroom-manager:8080": guarded.url,
        "/etc/oauth2-proxy": str(tmp_path),
    }
    flags = " ".join(re.findall(r"^ +(--.*?) ?\\?$", DOCS.read_text(), re.MULTILINE))
    for documented, here in places.items():
        assert documented in flags
        flags = flags.replace(documented, here)
    flags = re.sub("--cookie-refresh=[^ ]+", "--cookie-refresh=1s", flags)  # to see that tokens are renewed
    own = (f"--provider-ca-file={certificates / 'ca.crt'}", f"--http-address={url}", "--cookie-secure=false")
    command = [sys.executable, "-m", "deploy.local.leash", str(os.getpid()), str(program), *shlex.split(flags), *own]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def serves() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        with contextlib.suppress(httpx.HTTPError):
            return LOCAL_HTTP.get(f"{url}/ping").is_success
        return False

    try:
        eventually(serves)
        yield Proxy(url, provider, ssl.create_default_context(cafile=certificates / "ca.crt"))
    finally:
        process.kill()
        process.wait(20)


@pytest.fixture
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    browser.installed()
    shown = Browser(tmp_path_factory.mktemp("browser"))
    shown.page.call("Security.setIgnoreCertificateErrors", ignore=True)  # the provider's, who is not known to it
    yield shown.page
    shown.close()


def test_the_page_works_with_the_rights_of_the_person_who_signed_in(
    proxy: Proxy, provider: IdentityProvider, cluster: Cluster, page: Page
) -> None:
    cluster.configure()
    cluster.add_node("n1")
    provider.person, provider.groups = READER, (GROUP,)
    page.evaluate(f"(() => {{ location.href = '{proxy.url}/'; }})()")
    eventually(lambda: page.evaluate("document.querySelector('#headline a') !== null"))
    page.evaluate("(() => { location.hash = '#/nodes'; })()")
    eventually(lambda: page.evaluate("document.querySelector('#nodes .name')?.textContent") == "n1")
    page.evaluate("document.querySelector('#nodes .name').click()")
    eventually(
        lambda: page.evaluate("document.querySelector('#nodes .detail .told')?.textContent") not in (None, "Loading")
    )
    assert page.problems == []


def forged(guarded: Guarded) -> dict[str, str]:
    """An administrator's own token, and every header that names a user."""
    named = ("X-Forwarded-User", "X-Forwarded-Email", "X-Auth-Request-User", "X-Remote-User", "Impersonate-User")
    groups = dict.fromkeys(("X-Forwarded-Groups", "X-Remote-Group", "Impersonate-Group"), "system:masters")
    return {"Authorization": f"Bearer {guarded.server.token}", **dict.fromkeys(named, "system:admin"), **groups}


def test_nobody_is_let_in_from_outside_by_forged_headers(proxy: Proxy, guarded: Guarded) -> None:
    assert guarded.status(NODES_PATH, guarded.server.token) == 200, "what is forged would open the manager itself"
    answer = LOCAL_HTTP.get(f"{proxy.url}{NODES_PATH}", headers=forged(guarded))
    assert answer.status_code == 401
    assert LOCAL_HTTP.get(f"{proxy.url}/", headers=forged(guarded)).status_code == 302


def test_forged_headers_lend_no_rights_to_a_person_without_the_role(proxy: Proxy, guarded: Guarded) -> None:
    with proxy.signed_in(STRANGER, "visitors") as http:
        for headers in ({}, forged(guarded)):
            answer = http.get(NODES_PATH, headers=headers)
            assert answer.status_code == 403
            assert f"{STRANGER} may not get" in answer.json()["detail"]


def test_the_proxy_renews_the_token_of_a_session(proxy: Proxy, provider: IdentityProvider) -> None:
    with proxy.signed_in(READER, GROUP) as http:
        before = provider.refreshed
        eventually(lambda: http.get(NODES_PATH).status_code == 200 and provider.refreshed > before)
        assert http.get(NODES_PATH).status_code == 200


def test_an_ingress_gets_the_persons_token_for_its_own_request(proxy: Proxy, guarded: Guarded) -> None:
    assert LOCAL_HTTP.get(f"{proxy.url}/oauth2/auth").status_code == 401
    with proxy.signed_in(READER, GROUP) as http:
        answer = http.get("/oauth2/auth", headers=forged(guarded))
    assert answer.status_code == 202
    scheme, _, token = answer.headers["Authorization"].partition(" ")
    assert (scheme, guarded.status(NODES_PATH, token)) == ("Bearer", 200)
    assert token != guarded.server.token


def test_only_the_pages_own_origin_may_ask_for_a_plan(proxy: Proxy) -> None:
    with proxy.signed_in(READER, GROUP) as http:
        foreign, own = (
            http.post("/api/v1/plan", json={}, headers={"Origin": origin}).status_code
            for origin in ("https://elsewhere.example.com", proxy.url)
        )
    assert foreign == 403
    assert own not in (401, 403)
