import base64
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from shared.api.core import Node
from shared.errors import InvalidInput
from shared.kube import config, errors
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken, TokenFile
from shared.kube.informer import Informer
from shared.kube.resources import NODES
from shared.kube.retry import Retry
from shared.stop import Stop
from tests.support import certain, eventually
from tests.unit.kube.scripted import Exchange, ScriptedServer, answer, event, node, page, status, stream

ONCE = Retry(deadline_seconds=-1)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A service account as the kubelet mounts it: files behind a symlink that is swapped."""
    rotate(tmp_path, "first")
    for name in ("token", "ca.crt"):
        (tmp_path / name).symlink_to(Path("..data") / name)
    return tmp_path


def rotate(root: Path, token: str) -> None:
    version = root / f"..{token}"
    version.mkdir()
    (version / "token").write_text(token + "\n")
    (version / "ca.crt").write_text("")
    fresh = root / "..data_tmp"
    fresh.symlink_to(version.name)
    fresh.rename(root / "..data")


def test_in_a_pod_the_mounted_service_account_is_used(mounted: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    connection = certain(config.in_cluster(root=mounted, environ=environ))
    assert connection.server == "https://10.0.0.1:443"
    assert connection.ca_file == str(mounted / "ca.crt")
    assert connection.credentials.authorization() == "Bearer first"


def test_an_ipv6_service_address_is_bracketed(mounted: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    connection = certain(config.in_cluster(root=mounted, environ=environ))
    assert connection.server == "https://[fd00::1]:443"


def test_outside_of_a_pod_there_is_no_cluster_to_be_in(mounted: Path, tmp_path: Path) -> None:
    assert config.in_cluster(root=mounted, environ={}) is None
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert config.in_cluster(root=tmp_path / "nothing", environ=environ) is None


def test_a_rotated_token_is_sent_with_the_next_request(server: ScriptedServer, mounted: Path) -> None:
    client = Client(Connection(server.url, TokenFile(mounted / "token")), "test")
    server.then(answer(node("a", 1)), answer(node("a", 1)))
    client.get(NODES, "a")
    rotate(mounted, "second")
    client.get(NODES, "a")
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer first", "Bearer second"]


def test_a_token_that_vanishes_for_a_moment_stays_in_use(mounted: Path) -> None:
    token = TokenFile(mounted / "token")
    (mounted / "..data").unlink()
    assert token.authorization() == "Bearer first"
    (mounted / "..first" / "token").write_text("")
    (mounted / "..data").symlink_to("..first")
    assert token.authorization() == "Bearer first"


@pytest.mark.parametrize("content", [None, "", "\n", "tök"])
def test_without_a_token_to_begin_with_there_is_a_clear_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match="no token can be read"):
        TokenFile(path)


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Connection("http://x", StaticToken("secret")))


def test_after_a_401_other_credentials_are_tried_once(server: ScriptedServer) -> None:
    class Renewable:
        tokens: tuple[str, ...] = ("old", "new")

        def authorization(self) -> str:
            return self.tokens[0]

        def renew(self) -> None:
            self.tokens = self.tokens[1:] or self.tokens

    client = Client(Connection(server.url, Renewable()), "test")
    server.then(status(401, "Unauthorized"), answer(node("a", 1)), status(401, "Unauthorized"))
    client.get(NODES, "a")
    with pytest.raises(errors.Unauthorized):
        client.get(NODES, "a")  # and there is no third one
    assert [request.headers["Authorization"] for request in server.requests] == ["old", "new", "new"]


# --- kubeconfig


def write_kubeconfig(path: Path, cluster: dict[str, object], user: dict[str, object]) -> Path:
    context = {"cluster": "c", "user": "u"}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "ctx",
                "contexts": [{"name": "ctx", "context": context}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kc", {"server": "http://127.0.0.1:1"}, {"token": "t0"})
    connection = config.from_kubeconfig(str(path))
    assert connection.server == "http://127.0.0.1:1"
    assert connection.credentials.authorization() == "Bearer t0"


def test_a_token_is_read_as_the_official_client_reads_it_and_without_it(tmp_path: Path) -> None:
    cluster: dict[str, object] = {"server": "https://h:1/a", "certificate-authority": "ca.crt"}
    (tmp_path / "ca.crt").write_text("-")
    plain = write_kubeconfig(tmp_path / "plain", cluster, {"token": "t0"})
    unusual = write_kubeconfig(tmp_path / "unusual", cluster | {"insecure-skip-tls-verify": False}, {"token": "t0"})
    ours, official = config.from_kubeconfig(str(plain)), config.from_kubeconfig(str(unusual))
    assert ours.credentials.authorization() == official.credentials.authorization() == "Bearer t0"
    assert replace(ours, credentials=official.credentials) == official
    code = (
        f"import sys, shared.kube.config as c; c.from_kubeconfig({str(plain)!r}); sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_token_that_was_refused_is_read_again(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kc", {"server": "http://h"}, {"token": "old"})
    credentials = config.from_kubeconfig(str(path)).credentials
    write_kubeconfig(path, {"server": "http://h"}, {"token": "new"})
    assert credentials.authorization() == "Bearer old"
    credentials.renew()
    assert credentials.authorization() == "Bearer new"


def test_a_password_in_the_address_goes_no_further(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kc", {"server": "http://me:secret@127.0.0.1:1/a@b"}, {"token": "t0"})
    connection = config.from_kubeconfig(str(path))
    assert connection.server == "http://127.0.0.1:1/a@b"
    assert connection.credentials.authorization() == "Bearer t0"


@pytest.mark.parametrize("cluster", [{}, {"insecure-skip-tls-verify": False}], ids=["plain", "by the official client"])
def test_the_users_token_in_the_path_goes_no_further(tmp_path: Path, cluster: dict[str, object]) -> None:
    path = write_kubeconfig(tmp_path / "kc", {"server": "http://127.0.0.1:1/a/t0"} | cluster, {"token": "t0"})
    connection = config.from_kubeconfig(str(path))
    assert connection.server == "http://127.0.0.1:1/a"
    assert connection.credentials.authorization() == "Bearer t0"


def test_the_environment_names_a_kubeconfig_and_an_explicit_one_goes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = write_kubeconfig(tmp_path / "mine", {"server": "http://mine"}, {"token": "t"})
    other = write_kubeconfig(tmp_path / "other", {"server": "http://other"}, {"token": "t"})
    monkeypatch.setenv("KUBECONFIG", str(other))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert config.discover().server == "http://other"
    assert config.discover(str(mine)).server == "http://mine"


def test_an_exec_plugin_is_asked_again_after_a_401(tmp_path: Path, server: ScriptedServer) -> None:
    counter = tmp_path / "runs"
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib, sys\n"
        f"runs = pathlib.Path({str(counter)!r})\n"
        "n = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text(str(n))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f'run-{n}'}}))\n"
    )
    exec_user: dict[str, object] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    path = write_kubeconfig(tmp_path / "kc", {"server": server.url}, exec_user)
    client = Client(config.from_kubeconfig(str(path)), "test")
    server.then(answer(node("a", 1)), status(401, "Unauthorized"), answer(node("a", 1)))
    client.get(NODES, "a")
    client.get(NODES, "a")
    sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == ["Bearer run-1", "Bearer run-1", "Bearer run-2"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[1, 2]",
        "{unclosed",
        "apiVersion: v1\nkind: Config\n",
        "current-context: x\ncontexts: 5\nclusters: []\nusers: []\n",
        "current-context: gone\ncontexts: []\nclusters: []\nusers: []\n",
    ],
)
def test_a_broken_kubeconfig_is_a_clear_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kc"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match="kubeconfig"):
        config.from_kubeconfig(str(path))


@pytest.mark.parametrize("server", ["http://[::1", "", "127.0.0.1:6443", "ftp://host", "https://", "http://h:port"])
def test_a_server_that_is_no_url_is_a_clear_error(server: str) -> None:
    with pytest.raises(InvalidInput, match="API server: server"):
        Client(Connection(server), "test")


def test_the_official_client_is_not_loaded_before_a_kubeconfig_is_read() -> None:
    code = (
        "import sys, shared.kube.informer, shared.kube.lease, shared.kube.events, shared.kube.config;"
        "sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for "kube.test" alone, good as CA, server and client."""
    root = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kube.test"
    command += " -addext subjectAltName=DNS:kube.test -keyout key.pem -out cert.pem"
    subprocess.run(
        command.split(),
        cwd=root,
        check=True,
        capture_output=True,
    )
    return root


@pytest.fixture
def tls_server(certificates: Path) -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    context.load_verify_locations(certificates / "cert.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    server = ScriptedServer(context)
    yield server
    server.close()


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_a_kubeconfig_with_inline_certificates_and_another_server_name(
    tls_server: ScriptedServer, certificates: Path, tmp_path: Path
) -> None:
    cluster: dict[str, object] = {
        "server": tls_server.url,
        "certificate-authority-data": inline(certificates / "cert.pem"),
        "tls-server-name": "kube.test",
    }
    user: dict[str, object] = {
        "client-certificate-data": inline(certificates / "cert.pem"),
        "client-key-data": inline(certificates / "key.pem"),
    }
    peers: list[object] = []

    def note_peer(exchange: Exchange) -> None:
        assert isinstance(exchange.connection, ssl.SSLSocket)
        peers.append(exchange.connection.getpeercert())
        answer(node("a", 1))(exchange)

    tls_server.then(note_peer)
    path = write_kubeconfig(tmp_path / "kc", cluster, user)
    assert Client(config.from_kubeconfig(str(path)), "test").get(NODES, "a")
    assert peers[0], "the client certificate was not sent"


def test_a_certificate_for_another_name_is_not_accepted(tls_server: ScriptedServer, certificates: Path) -> None:
    connection = Connection(tls_server.url, ca_file=str(certificates / "cert.pem"))
    with pytest.raises(errors.Unreachable, match="certificate verify failed"):
        Client(connection, "test", retry=ONCE).get(NODES, "a")


def test_verification_can_be_switched_off_and_is_said_aloud(
    tls_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    tls_server.then(answer(node("a", 1)))
    Client(Connection(tls_server.url, verify=False), "test", retry=ONCE).get(NODES, "a")
    assert "not verified" in caplog.text


def test_a_rotated_ca_is_read_by_the_next_connection(
    tls_server: ScriptedServer, certificates: Path, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    client = Client(Connection(tls_server.url, ca_file=str(ca), tls_server_name="kube.test"), "test", retry=ONCE)
    with pytest.raises(errors.Unreachable):
        client.get(NODES, "a")
    ca.write_bytes((certificates / "cert.pem").read_bytes())
    tls_server.then(answer(node("a", 1)))
    assert client.get(NODES, "a")


def test_a_watch_over_tls_ends_when_told_to(
    tls_server: ScriptedServer,
    certificates: Path,
    start: Callable[[Callable[[Stop], None]], Stop],
) -> None:
    connection = Connection(tls_server.url, ca_file=str(certificates / "cert.pem"), tls_server_name="kube.test")
    informer = Informer(Client(connection, "test"), NODES, Node)
    tls_server.then(page(version=1), stream(event("ADDED", node("a", 2))))
    start(informer.run)  # the fixture asserts that it ends
    eventually(lambda: informer.get("a"))
