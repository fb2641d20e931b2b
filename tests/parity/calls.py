"""A scripted client: calls on a server, made in a namespace of their own, and a transcript of the answers."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import httpx
import yaml

from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.webhooks import WebhookServer

Json = Any  # what JSON decodes to
Exchange = dict[str, Json]  # one call: its line, status code, telling headers and body

JSON, YAML = "application/json", "application/yaml"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

_TELLING = ("content-type", "warning", "retry-after")
_WAIT_SECONDS = 20.0
_IN_NAMESPACE = {
    "cm": "/api/v1{}/configmaps", "pods": "/api/v1{}/pods", "events": "/api/v1{}/events",
    "secrets": "/api/v1{}/secrets", "accounts": "/api/v1{}/serviceaccounts",
    "leases": "/apis/coordination.k8s.io/v1{}/leases", "pdb": "/apis/policy/v1{}/poddisruptionbudgets",
    "deployments": "/apis/apps/v1{}/deployments", "rs": "/apis/apps/v1{}/replicasets",
}  # fmt: skip
_CLUSTER_WIDE = {
    "namespaces": "/api/v1/namespaces",
    "nodes": "/api/v1/nodes",
    "nm": "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "classes": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "mutating": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "validating": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


@dataclass(frozen=True)
class Step:
    """One call; `quiet`: it only prepares the ground, has to succeed, and is not kept."""

    method: str
    path: str
    body: Json = None
    media_type: str = JSON
    accept: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False


def get(path: str, accept: str = "") -> Step:
    return Step("GET", path, accept=accept)


def post(path: str, body: Json, media_type: str = JSON) -> Step:
    return Step("POST", path, body, media_type)


def put(path: str, body: Json, media_type: str = JSON) -> Step:
    return Step("PUT", path, body, media_type)


def patch(path: str, body: Json, media_type: str = MERGE) -> Step:
    return Step("PATCH", path, body, media_type)


def delete(path: str, body: Json = None) -> Step:
    return Step("DELETE", path, body)


def given(path: str, body: Json) -> Step:
    """An object that is there before the behaviour begins."""
    return Step("POST", path, body, quiet=True)


class Calls:
    """Makes calls and keeps their answers. In paths and bodies `$ns` is the namespace, `$me` a name of nobody else's,
    and `$cm`, `$pods`, `$nodes` ... are the collections' paths."""

    def __init__(self, server: ApiServer, kubectl: Path | None = None) -> None:
        self.server = server
        self.exchanges: list[Exchange] = []
        self.ns, self.me = f"ns-{uuid.uuid4().hex[:8]}", f"me-{uuid.uuid4().hex[:8]}"
        self._kubectl = kubectl
        self._names = {"ns": self.ns, "me": self.me} | _CLUSTER_WIDE
        self._names |= {key: path.format(f"/namespaces/{self.ns}") for key, path in _IN_NAMESPACE.items()}
        self._http = server.http(headers={"User-Agent": "parity/1"}, timeout=30)
        self._webhooks: WebhookServer | None = None

    def __enter__(self) -> Calls:
        self.prepare(post("$namespaces", {"metadata": {"name": "$ns"}}))
        response = self._send(post("$accounts", {"metadata": {"name": "default"}}))
        assert response.status_code in (201, 409), response.text
        return self

    def __exit__(self, *_: object) -> None:
        # The namespace stays: who deletes hundreds of them waits minutes for the controller that empties them.
        for path in ("$mutating/$me", "$validating/$me", "$nodes/$me", "$nm/$me", "$classes/$me"):
            response = self._send(delete(path))
            assert response.status_code in (200, 202, 404, 409), response.text
        self._http.close()
        if self._webhooks is not None:
            self._webhooks.close()

    def make(self, step: Step) -> Json:
        """Makes a call, keeps its answer unless it is quiet, and gives the decoded body."""
        if step.quiet:
            return self.prepare(step)
        response = self._send(step)
        self._keep(self._line(step), response, self._body(response))
        return self._body(response)

    def prepare(self, step: Step) -> Json:
        """Makes a call that has to succeed, and keeps its answer only so that what is in it can be named."""
        response = self._send(step)
        assert response.is_success, f"{step.method} {response.url}: {response.status_code} {response.text}"
        body = self._body(response)
        if step.method == "POST" and step.path == "$nodes":
            # Until the node's controllers have taken their taint off, they write, too.
            body = self.settled("$nodes/$me", lambda node: not node["spec"].get("taints"))
        self.exchanges.append({"quiet": True, "body": body})
        return body

    def get(self, path: str, accept: str = "") -> Json:
        return self.make(get(path, accept))

    def post(self, path: str, body: Json, media_type: str = JSON) -> Json:
        return self.make(post(path, body, media_type))

    def put(self, path: str, body: Json, media_type: str = JSON) -> Json:
        return self.make(put(path, body, media_type))

    def patch(self, path: str, body: Json, media_type: str = MERGE) -> Json:
        return self.make(patch(path, body, media_type))

    def delete(self, path: str, body: Json = None) -> Json:
        return self.make(delete(path, body))

    def given(self, path: str, body: Json) -> Json:
        return self.prepare(given(path, body))

    def settled(self, path: str, condition: Callable[[Json], object]) -> Json:
        """The object once a condition holds: what controllers do, they do when they do it."""

        def look() -> Json:
            response = self._send(get(path))
            obj = self._body(response)
            return [obj] if response.is_success and condition(obj) else None

        return eventually(look, _WAIT_SECONDS)[0]

    def gone(self, path: str) -> None:
        """Waits until there is no such object; kept as a fact."""
        eventually(lambda: self._send(get(path)).status_code == 404, _WAIT_SECONDS)
        self.exchanges.append({"call": f"GET {self.filled(path)} until it is gone", "code": 404})

    @contextmanager
    def watch(self, path: str, accept: str = "") -> Iterator[Watch]:
        """An open watch; the events that were taken of it are kept when it ends."""
        step = get(path, accept)
        with self._http.stream(
            "GET", self.filled(path), headers=self._headers(step), timeout=_WAIT_SECONDS
        ) as response:
            watch = Watch(response)
            yield watch
        self._keep(self._line(step), response, watch.events)

    def kubectl(self, command: str, stdin: Json = None) -> str:
        """Runs kubectl in the namespace; keeps its exit code and what it wrote."""
        assert self._kubectl is not None
        given = self.filled(stdin) if isinstance(stdin, str | None) else json.dumps(self.filled(stdin))
        shell = self.filled(command)
        environment = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(self.server.kubeconfig),
            "HOME": str(self.server.directory),
        }
        script = f'kubectl() {{ {self._kubectl} -n {self.ns} "$@"; }}\nkubectl {shell}'
        done = subprocess.run(
            ["bash", "-c", script], input=given, env=environment, capture_output=True, text=True, timeout=60
        )
        output = (done.stdout + done.stderr).splitlines()
        self.exchanges.append({"call": f"kubectl {shell}", "code": done.returncode, "body": output})
        return done.stdout

    @property
    def webhooks(self) -> WebhookServer:
        """A server of admission webhooks that lives as long as this client."""
        if self._webhooks is None:
            directory = self.server.directory / self.me
            directory.mkdir()
            self._webhooks = WebhookServer(directory)
        return self._webhooks

    def until(self, step: Step, condition: Callable[[], object]) -> None:
        """Repeats a call, which is not kept, until a condition holds."""

        def attempt() -> object:
            self._send(step)
            return condition()

        eventually(attempt, _WAIT_SECONDS)

    def keep(self, line: str, body: Json) -> None:
        """Keeps something else that was seen."""
        self.exchanges.append({"call": line, "code": 200, "body": body})

    def filled(self, value: Json) -> Json:
        """The value with the names filled in."""
        if isinstance(value, str):
            return Template(value).safe_substitute(self._names)
        if isinstance(value, dict):
            return {self.filled(key): self.filled(item) for key, item in value.items()}
        return [self.filled(item) for item in value] if isinstance(value, list) else value

    def _line(self, step: Step) -> str:
        media = "" if step.media_type == JSON else f" ({step.media_type.removeprefix('application/')})"
        accept = f" as {step.accept}" if step.accept else ""
        return f"{step.method} {self.filled(step.path)}{media}{accept}"

    def _headers(self, step: Step) -> dict[str, str]:
        headers = dict(step.headers)
        if step.body is not None:
            headers["Content-Type"] = step.media_type
        return headers | ({"Accept": step.accept} if step.accept else {})

    def _send(self, step: Step) -> httpx.Response:
        body = self.filled(step.body)
        content = body if isinstance(body, str | bytes | None) else json.dumps(body)
        return self._http.request(step.method, self.filled(step.path), content=content, headers=self._headers(step))

    def _body(self, response: httpx.Response) -> Json:
        media_type = response.headers.get("content-type", "")
        if "yaml" in media_type:
            return json.loads(json.dumps(yaml.safe_load(response.text), default=str))
        return response.json() if "json" in media_type else response.text

    def _keep(self, line: str, response: httpx.Response, body: Json) -> None:
        headers = {name: response.headers[name] for name in _TELLING if name in response.headers}
        if headers.get("content-type") == JSON:
            del headers["content-type"]
        kept: Exchange = {"call": line, "code": response.status_code}
        self.exchanges.append(kept | ({"headers": headers} if headers else {}) | {"body": body})


class Watch:
    """The events of an open watch."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        self.events: list[Json] = []

    def take(self, count: int) -> list[Json]:
        """The next events, as they come."""
        taken = [json.loads(next(self._lines)) for _ in range(count)]
        self.events += taken
        return taken

    def rest(self) -> None:
        """Everything until the server ends the watch."""
        self.events += [json.loads(line) for line in self._lines if line]
