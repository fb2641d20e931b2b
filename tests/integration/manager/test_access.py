"""Who may ask the manager and an agent: those whom the API server lets, by token or by client certificate."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy import explain
from deploy.access import ClusterContext
from deploy.manager_api import ManagerApi
from deploy.page import PageProxy
from manager.nodeside.webhook.serving import AUTHENTICATION, AUTHENTICATION_NAMESPACE, CLIENT_CA
from shared import names
from shared.kube.resources import CONFIGMAPS, SERVICEACCOUNTS, Resource
from tests.integration.manager.conftest import Cluster
from tests.integration.manager.guarded import Guarded, ensure
from tests.support import PATIENCE_SECONDS, eventually
from tests.support.apiserver import REAL, ROOT, write_kubeconfig

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)


def subject(directory: Path, name: str) -> tuple[Path, Path]:
    """A client certificate of /O=.../CN=..., which is its own authority, and its key."""
    certificate, key = directory / "client.crt", directory / "client.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", name, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_health_is_answered_to_anybody_and_nothing_else(guarded: Guarded) -> None:
    assert guarded.status("/healthz") == 200
    eventually(lambda: guarded.status("/readyz") == 200)
    for path in (
        "/",
        "/metrics",
        "/docs",
        "/api/v1/nodes",
        "/page/page.js",
        "/openapi.json",
        "/healthz/x",
        "//healthz",
    ):
        assert guarded.status(path) == 401
        assert guarded.status(path, "nonsense") in (401, 429)
    assert guarded.status("/healthz", method="POST", json={}) == 401
    assert guarded.status("/scheduler/filter", method="POST", json={}) == 401
    for path in ("/", "/metrics", "/api/v1/nodes"):
        assert guarded.status(path, guarded.server.token) == 200


def test_many_bad_tokens_cost_few_reviews_and_keep_no_known_one_out(guarded: Guarded) -> None:
    def reviews() -> float:
        with httpx.Client(verify=False) as http:
            headers = {"Authorization": f"Bearer {guarded.server.token}"}
            text = http.get(f"{guarded.url}/metrics", headers=headers).text
        created = [line for line in text.splitlines() if line.startswith("headroom_kube_requests_total")]
        return sum(float(line.rpartition(" ")[2]) for line in created if 'verb="create"' in line)

    before = reviews()
    with httpx.Client(verify=False) as http:
        answers = [
            http.get(f"{guarded.url}/api/v1/nodes", headers={"Authorization": f"Bearer bad-{number}"}).status_code
            for number in range(200)
        ]
    assert set(answers) == {401, 429}
    assert guarded.status("/metrics", guarded.server.token) == 200
    assert reviews() - before < 150


def test_while_the_api_server_is_away_nobody_new_is_let_in_and_health_is_answered(guarded: Guarded) -> None:
    guarded.server.kill()
    try:
        assert guarded.status("/healthz") == 200
        assert guarded.status("/api/v1/nodes", guarded.server.token) == 503
    finally:
        guarded.server.start()
    eventually(lambda: guarded.status("/api/v1/nodes", guarded.server.token) == 200)


def trusted(guarded: Guarded, directory: Path, name: str) -> tuple[Path, Path]:
    """The same, of a client whose authority the manager knows."""
    certificate, key = subject(directory, name)
    patch = {"data": {CLIENT_CA: certificate.read_text()}}
    guarded.server.client().patch(CONFIGMAPS, AUTHENTICATION, patch, AUTHENTICATION_NAMESPACE)
    certificates = guarded.manager._certificate
    assert certificates is not None
    certificates._trust_clients()  # which it does once a minute
    return certificate, key


def test_a_client_certificate_of_the_cluster_says_who_asks(guarded: Guarded, tmp_path: Path) -> None:
    certificate, key = trusted(guarded, tmp_path, "/O=system:masters/CN=somebody")

    def asked(certificate: Path, key: Path) -> int:
        context = ssl.create_default_context(cadata=guarded.authorities())
        context.load_cert_chain(certificate, key)
        with httpx.Client(verify=context) as http:
            extensions = {"sni_hostname": names.MANAGER_SERVER_NAME}
            return http.get(f"{guarded.url}/api/v1/nodes", extensions=extensions).status_code

    eventually(lambda: "BEGIN CERTIFICATE" in guarded.authorities())
    assert asked(certificate, key) == 200
    (tmp_path / "other").mkdir()
    with pytest.raises(httpx.TransportError):
        asked(*subject(tmp_path / "other", "/O=system:masters/CN=stranger"))


def test_a_scheduler_that_is_configured_as_the_sample_says_asks_by_its_client_certificate(
    guarded: Guarded, tmp_path: Path
) -> None:
    certificate, key = trusted(guarded, tmp_path, "/O=system:masters/CN=system:kube-scheduler")
    authorities = tmp_path / "ca.crt"
    authorities.write_text(eventually(guarded.authorities))
    document = yaml.safe_load((ROOT / "deploy" / "scheduler" / "kube-scheduler-config.yaml").read_text())
    (sample,) = document["extenders"]
    context = ssl.create_default_context(cafile=str(authorities))

    def asked() -> httpx.Response:
        body = {"Pod": {"metadata": {"name": "p", "namespace": "default"}}, "NodeNames": ["n"]}
        extensions = {"sni_hostname": sample["tlsConfig"]["serverName"]}
        with httpx.Client(verify=context, timeout=PATIENCE_SECONDS) as http:
            return http.post(f"{guarded.url}/scheduler/{sample['filterVerb']}", json=body, extensions=extensions)

    assert asked().status_code == 401
    context.load_cert_chain(certificate, key)
    assert asked().raise_for_status().json()["NodeNames"] == ["n"]


def test_explain_and_the_page_ask_with_the_rights_of_the_kubeconfigs_user(
    guarded: Guarded, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.configure()
    cluster.add_node("n1")
    eventually(lambda: "BEGIN CERTIFICATE" in guarded.authorities())
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", guarded.server.connection)
    eventually(lambda: guarded.status("/api/v1/nodes/n1", guarded.server.token) == 200)
    assert "Node n1" in explain.by_manager("n1", guarded.url, style="table", access=ClusterContext(kubeconfig))
    api = ManagerApi(guarded.url, ClusterContext(kubeconfig))
    page = PageProxy(api)
    page.start()
    try:
        with httpx.Client(follow_redirects=True) as stranger, httpx.Client(follow_redirects=True) as browser:
            root = page.address.partition("?")[0]
            assert stranger.get(root).status_code == 403
            opened = browser.get(page.address)
            assert (opened.status_code, "<html" in opened.text) == (200, True)
            assert "script-src 'self'" in opened.headers["content-security-policy"]
            assert [row["name"] for row in browser.get(f"{root}api/v1/nodes").json()["nodes"]] == ["n1"]
            assert stranger.get(page.address).status_code == 403  # good once
            tag = browser.get(f"{root}api/v1/status").headers["etag"]
            known = browser.get(f"{root}api/v1/status", headers={"if-none-match": tag})
            assert (known.status_code, known.content) == (304, b"")
            assert browser.get(root, headers={"host": "rebound.example"}).status_code == 403
    finally:
        page.close()
        api.close()


def test_roles_of_the_chart_say_who_may_read_scrape_and_schedule(guarded: Guarded, cluster_kind: str) -> None:
    if cluster_kind != REAL:
        pytest.skip("the embedded API server has no access rights: its one token may do everything")
    client, namespace = guarded.server.client(), names.INSTALL_NAMESPACE
    for account in ("reader", "metrics-reader", "scheduler", "nobody"):
        ensure(client, SERVICEACCOUNTS, "ServiceAccount", f"test-{account}", namespace)
        if account != "nobody":
            ensure(
                client,
                BINDINGS,
                "ClusterRoleBinding",
                f"test-{account}",
                roleRef={"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": f"headroom-{account}"},
                subjects=[{"kind": "ServiceAccount", "name": f"test-{account}", "namespace": namespace}],
            )

    def token(account: str, *audiences: str) -> str:
        return client.request_token(namespace, f"test-{account}", audiences=audiences).token

    reader, scraper, scheduler, nobody = map(token, ("reader", "metrics-reader", "scheduler", "nobody"))
    question: dict[str, Any] = {"method": "POST", "json": {"Pod": {"metadata": {"name": "p"}}, "NodeNames": []}}
    eventually(lambda: guarded.status("/api/v1/nodes", reader) == 200)
    eventually(lambda: guarded.status("/metrics", scraper) == 200)
    eventually(lambda: guarded.status("/scheduler/filter", scheduler, **question) == 200)
    assert guarded.status("/metrics", reader) == 200
    assert guarded.status("/", reader) == 200
    assert guarded.status("/scheduler/filter", reader, **question) == 403
    assert guarded.status("/api/v1/nodes", scraper) == 403
    assert guarded.status("/metrics", scheduler) == 403
    assert {guarded.status(path, nobody) for path in ("/", "/metrics", "/api/v1/nodes", "/docs")} == {403}
    assert guarded.status("/api/v1/nodes", token("reader", "another-audience")) == 401
    assert guarded.status("/api/v1/nodes") == 401
    assert guarded.status("/healthz") == 200


@pytest.mark.parametrize(
    "header", ["X-Forwarded-User", "X-Auth-Request-User", "X-Remote-User", "Impersonate-User", "Remote-User"]
)
def test_a_header_that_only_names_a_user_is_not_believed(guarded: Guarded, header: str) -> None:
    with httpx.Client(verify=False) as http:
        named = {header: "system:admin", "X-Forwarded-Groups": "system:masters", "X-Remote-Group": "system:masters"}
        assert http.get(f"{guarded.url}/api/v1/nodes", headers=named).status_code == 401
