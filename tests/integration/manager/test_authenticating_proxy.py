"""The page behind a proxy that signs people in: the proxy sends on each person's own token, and nothing else counts."""

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shared import names, web
from shared.kube.resources import SERVICEACCOUNTS
from tests.integration.manager.conftest import Cluster
from tests.integration.manager.guarded import Guarded, ensure
from tests.integration.manager.test_access import BINDINGS
from tests.support import browser, eventually
from tests.support.apiserver import REAL
from tests.support.browser import Browser, Page
from tests.support.local_http import LOCAL_HTTP

READER, STRANGER = "proxied-reader", "proxied-stranger"
IDENTITIES = ("X-Forwarded-User", "X-Auth-Request-User", "X-Remote-User", "Impersonate-User", "Remote-User")


class AuthenticatingProxy:
    """Knows who signed in by a cookie, and adds that person's token; `Host` stays that of the browser."""

    def __init__(self, guarded: Guarded, tokens: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._manager = guarded.url
        self._http = httpx.Client(verify=ssl.create_default_context(cadata=guarded.authorities()))
        routes = [Route("/sign-in/{person}", self._sign_in), Route("/{path:path}", self._forward)]
        self._server = web.server(Starlette(routes=routes), "127.0.0.1:0")
        self.url = self._server.url
        self._server.start()

    def close(self) -> None:
        self._server.close()
        self._http.close()

    async def _sign_in(self, request: Request) -> Response:
        answer = RedirectResponse("/", 303)
        answer.set_cookie("person", request.path_params["person"], httponly=True)
        return answer

    async def _forward(self, request: Request) -> Response:
        token = self._tokens.get(request.cookies.get("person", ""))
        if token is None:
            return Response("sign in first", 401)
        headers = {name: value for name, value in request.headers.items() if name not in ("authorization", "cookie")}
        headers["authorization"] = f"Bearer {token}"
        return await run_in_threadpool(self._asked, str(request.url.path), request.url.query, headers)

    def _asked(self, path: str, query: str, headers: dict[str, str]) -> Response:
        url = f"{self._manager}{path}?{query}" if query else f"{self._manager}{path}"
        answer = self._http.get(url, headers=headers, extensions={"sni_hostname": names.MANAGER_SERVER_NAME})
        kept = ("content-type", "content-security-policy", "etag", "cache-control")
        return Response(
            answer.content, answer.status_code, {name: answer.headers[name] for name in kept if name in answer.headers}
        )


@pytest.fixture
def proxy(guarded: Guarded, cluster_kind: str) -> Iterator[AuthenticatingProxy]:
    eventually(lambda: "BEGIN CERTIFICATE" in guarded.authorities())
    client, namespace = guarded.server.client(), names.INSTALL_NAMESPACE
    tokens = {READER: guarded.server.token}
    if cluster_kind == REAL:
        for person in (READER, STRANGER):
            ensure(client, SERVICEACCOUNTS, "ServiceAccount", person, namespace)
            tokens[person] = client.request_token(namespace, person).token
        ensure(
            client,
            BINDINGS,
            "ClusterRoleBinding",
            READER,
            roleRef={"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "headroom-reader"},
            subjects=[{"kind": "ServiceAccount", "name": READER, "namespace": namespace}],
        )
    eventually(lambda: guarded.status("/api/v1/nodes", tokens[READER]) == 200)
    found = AuthenticatingProxy(guarded, tokens)
    yield found
    found.close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    browser.installed()
    shown = Browser(tmp_path)
    yield shown.page
    shown.close()


def test_the_page_works_with_the_rights_of_the_person_who_signed_in(
    proxy: AuthenticatingProxy, cluster: Cluster, page: Page
) -> None:
    cluster.configure()
    cluster.add_node("n1")
    assert LOCAL_HTTP.get(f"{proxy.url}/").status_code == 401
    page.evaluate(f"(() => {{ location.href = '{proxy.url}/sign-in/{READER}'; }})()")
    eventually(lambda: page.evaluate("document.querySelector('#headline a') !== null"))
    page.evaluate("(() => { location.hash = '#/nodes'; })()")
    eventually(lambda: page.evaluate("document.querySelector('#nodes .name')?.textContent") == "n1")
    page.evaluate("document.querySelector('#nodes .name').click()")
    eventually(
        lambda: page.evaluate("document.querySelector('#nodes .detail .told')?.textContent") not in (None, "Loading")
    )
    assert page.problems == []


def test_a_person_without_the_role_is_refused_by_name(proxy: AuthenticatingProxy, cluster_kind: str) -> None:
    if cluster_kind != REAL:
        pytest.skip("the embedded API server has no access rights: its one token may do everything")
    answer = LOCAL_HTTP.get(f"{proxy.url}/api/v1/nodes", headers={"cookie": f"person={STRANGER}"})
    assert answer.status_code == 403
    assert f"system:serviceaccount:{names.INSTALL_NAMESPACE}:{STRANGER} may not get" in answer.json()["detail"]


@pytest.mark.parametrize("header", IDENTITIES)
def test_a_header_that_only_names_a_user_is_not_believed(guarded: Guarded, header: str) -> None:
    with httpx.Client(verify=False) as http:
        named = {header: "system:admin", "X-Forwarded-Groups": "system:masters", "X-Remote-Group": "system:masters"}
        assert http.get(f"{guarded.url}/api/v1/nodes", headers=named).status_code == 401
