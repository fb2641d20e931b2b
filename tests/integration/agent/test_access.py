"""Who may ask an agent, over the TLS that it makes itself or has from files."""

import ssl
import time
from pathlib import Path

import httpx
import pytest

from agent.main import Agent
from shared.access import PASSED_ON_HEADER
from shared.certificates import Pair, issued
from shared.errors import InvalidInput
from tests.integration.agent.node import Node
from tests.support import eventually
from tests.support.apiserver import ApiServer


def status(agent: Agent, path: str, token: str = "", header: str = "Authorization") -> int:
    headers = {header: f"Bearer {token}"} if token else {}
    with httpx.Client(verify=False, timeout=60) as http:
        return http.get("https://{}:{}{}".format(*agent.address, path), headers=headers).status_code


def test_an_agent_answers_for_its_health_to_anybody_and_else_to_whom_the_api_server_lets(
    server: ApiServer, node: Node
) -> None:
    agent = node.agent(tls="self", authorization="delegated")
    assert status(agent, "/healthz") == 200
    for path in ("/metrics", "/docs", "/api/v1/pods", "/api/v1/series?kind=node&metric=cpu"):
        assert status(agent, path) == 401
        assert status(agent, path, "nonsense") == 401
        assert status(agent, path, server.token) == 200
        assert status(agent, path, "nonsense", PASSED_ON_HEADER) == 401
        assert status(agent, path, server.token, PASSED_ON_HEADER) == 200  # as it comes through an API server


def test_a_certificate_from_files_is_served_and_followed(node: Node, tmp_path: Path) -> None:
    def renew() -> Pair:
        pair = issued(["agent.example"], time.time(), 3600)
        (tmp_path / "tls.crt").write_text(pair.chain)
        (tmp_path / "tls.key").write_text(pair.key)
        return pair

    def served(pair: Pair) -> bool:
        context = ssl.create_default_context(cadata=pair.authority)
        with httpx.Client(verify=context) as http:
            try:
                url = "https://{}:{}/healthz".format(*agent.address)
                return http.get(url, extensions={"sni_hostname": "agent.example"}).is_success
            except httpx.TransportError:
                return False

    first = renew()
    agent = node.agent(tls="files", tls_certificate_directory=str(tmp_path))
    eventually(lambda: served(first))
    second = renew()
    assert agent._certificate is not None
    agent._certificate.turn()  # which it does every 10 s
    assert served(second)
    (tmp_path / "tls.key").write_text("half written")
    agent._certificate.turn()
    assert served(second)


def test_files_of_no_directory_are_refused(node: Node) -> None:
    with pytest.raises(InvalidInput, match="tlsCertificateDirectory"):
        node.agent(tls="files")
