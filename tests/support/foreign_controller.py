"""Controllers that others wrote, as tests run them: real processes beside an API server of the tests."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client import CollectorRegistry

from deploy.local.ports import LOOPBACK
from shared.api.core import Node
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, ApiError
from shared.kube.resources import NODES, Resource
from shared.telemetry import Loops
from tests.apiserver.binaries import Unavailable
from tests.apiserver.module_build import BuiltController
from tests.support import eventually
from tests.support.apiserver import ROOT, ApiServer
from tests.support.custom_kinds import CRDS
from tests.support.kubelets import Kubelets
from tests.support.programs import do_without


def require_built(build: Callable[[Mapping[str, str]], BuiltController]) -> BuiltController:
    """The controller. Without it the test is skipped on a user's machine, and fails in CI."""
    try:
        return build(os.environ)
    except Unavailable as error:
        do_without(str(error))


class ForeignController:
    """One process with its log, its own definitions, and kubelets on the nodes that carry its label."""

    def __init__(self, name: str, node_label: str, server: ApiServer, built: BuiltController, directory: Path) -> None:
        self.client: Client = server.client()
        self.server = server
        self.log = directory / f"{name}.log"
        self._name = name
        self._node_label = node_label
        self._built = built
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._loops = Loops(CollectorRegistry())

    def nodes(self) -> list[Node]:
        """Those that it made."""
        return self.client.list(NODES, into=Node, label_selector=self._node_label).items

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def close(self) -> None:
        self._loops.close()
        self.stop()
        self.client.close()

    def _launch(self, arguments: Sequence[str], environment: Mapping[str, str], health: str) -> None:
        """Starts the process, and returns once `health`, a port with a path, answers."""
        given = {**os.environ, "KUBECONFIG": str(self.server.kubeconfig), "GOMAXPROCS": "2", **environment}
        command = [sys.executable, "-m", "deploy.local.leash", str(os.getpid()), str(self._built.program), *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=given, stdout=log, stderr=log)
        eventually(lambda: self._serves(health))

    def _serves(self, health: str) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-2000:]
        with contextlib.suppress(httpx.HTTPError), httpx.Client(timeout=2, trust_env=False) as http:
            return http.get(f"http://{LOOPBACK}:{health}").is_success
        return False

    def _keep_nodes_alive(self) -> None:
        kubelets = Kubelets(self.client, self.nodes)
        self._loops.every(f"kubelets of {self._name}", lambda: 0.3, kubelets.keep_alive)

    def _own_definitions(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._built.definitions.glob("*.yaml")):
            yield yaml.safe_load(path.read_text())

    def _define(self, bodies: Iterable[dict[str, Any]], kinds: Iterable[Resource]) -> None:
        """Returns once these `kinds` of the definitions are served."""
        for body in bodies:
            with contextlib.suppress(AlreadyExists):
                self.client.create(CRDS, body)
        for kind in kinds:
            eventually(functools.partial(self._lists, kind))

    def _lists(self, kind: Resource) -> bool:
        try:
            self.client.list(kind)
        except ApiError:
            return False
        return True
