import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.apiserver import ApiServer
from tests.support.programs import program

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Api:
    """Plain HTTP calls, answers decoded."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def call(self, method: str, path: str, body: Any = None, media_type: str = "application/json") -> httpx.Response:
        content = body if isinstance(body, str | bytes | None) else json.dumps(body)
        return self.http.request(method, path, content=content, headers={"Content-Type": media_type})

    def ok(self, method: str, path: str, body: Any = None, media_type: str = "application/json") -> Any:
        response = self.call(method, path, body, media_type)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def patch(self, path: str, body: Any, media_type: str = MERGE) -> Any:
        return self.ok("PATCH", path, body, media_type)

    def fails(self, code: int, method: str, path: str, body: Any = None, media_type: str = "application/json") -> Any:
        """The Status of a call that has to fail with a code."""
        response = self.call(method, path, body, media_type)
        assert response.status_code == code, response.text
        return response.json()

    def gone(self, path: str) -> bool:
        return self.call("GET", path).status_code == 404

    @contextmanager
    def watch(self, path: str, **query: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a watch, as they come; a read waits 5 s at most."""
        with self.http.stream("GET", path, params={"watch": "true", **query}, timeout=5) as response:
            assert response.status_code == 200, response.read()
            yield (json.loads(line) for line in response.iter_lines())


Connect = Callable[[ApiServer], Api]
Kubectl = Callable[..., str]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients that are closed when the test ends."""
    clients: list[Api] = []

    def connected(server: ApiServer) -> Api:
        clients.append(Api(server.http(timeout=10)))
        return clients[-1]

    yield connected
    for client in clients:
        client.http.close()


@pytest.fixture
def api(server: ApiServer, connect: Connect) -> Api:
    return connect(server)


@pytest.fixture
def namespace(server: ApiServer, api: Api) -> Iterator[str]:
    """The path of a namespace of the test's own. No controller makes pods in it once the test is over."""
    name = server.add_namespace()
    yield f"/api/v1/namespaces/{name}"
    for kind in ("deployments", "replicasets", "statefulsets"):
        path = f"/apis/apps/v1/namespaces/{name}/{kind}"
        for item in api.ok("GET", path)["items"]:
            api.call("DELETE", f"{path}/{item['metadata']['name']}?propagationPolicy=Background")


@pytest.fixture
def unique() -> str:
    return f"x-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    """Runs the real kubectl and gives its output; a failure carries what it said."""
    binary = str(program("kubectl"))
    environment = os.environ | {"KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}

    def run(command: str, stdin: Any = None, *, fails: bool = False) -> str:
        given = stdin if isinstance(stdin, str | None) else json.dumps(stdin)
        done = subprocess.run(
            [binary, *command.split()], input=given, env=environment, capture_output=True, text=True, timeout=90
        )
        assert (done.returncode != 0) is fails, f"kubectl {command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1"}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def node_metric(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}, **fields}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}
