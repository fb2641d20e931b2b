"""A node's view of an API server that answers as its test says, and a reporter whose time the test holds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import SeriesKey, Usage
from agent.reporter.reporter import Reporter
from agent.reporter.schedule import Schedule
from agent.settings import AgentSettings
from agent.states_informer.informer import StatesInformer
from agent.states_informer.kubelet import KubeletAccess
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.retry import ONCE
from shared.telemetry import Loops
from tests.support import eventually
from tests.unit.agent.models import entities, predict_server
from tests.unit.kube.scripted import Answer, Request, ScriptedServer, answer, page, stream

NODE = "n"


def named(name: str, version: int, **fields: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, **fields}


class NodeServer(ScriptedServer):
    """Lists by the last part of the path, and one watch's events each. Writes go by the script, then all succeed."""

    def __init__(self, objects: Mapping[str, list[Any]], events: Mapping[str, list[bytes]] | None = None) -> None:
        super().__init__()
        self._objects = objects
        self._events = events or {}
        self.refusal: Answer | None = None  # what every write is answered, for as long as it is set
        self.unreadable: dict[str, Answer] = {}  # what lists and watches of a kind are answered, while it is in there

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]

    def next_answer(self, request: Request) -> Answer:
        if request.method != "GET":
            with self._lock:
                self.requests.append(request)
                if self._script:
                    return self._script.pop(0)
            return self.refusal or answer(named(NODE, 9))
        kind = request.path.rsplit("/", 1)[-1]
        if kind in self.unreadable:
            return self.unreadable[kind]
        if "watch" in request.query:
            return stream(*self._events.get(kind, []))
        return page(*self._objects.get(kind, []), version=1)


class Reporting:
    """A reporter with all it looks at, second by second."""

    def __init__(
        self,
        directory: Path,
        server: NodeServer,
        pods: int = 1,
        *,
        kubelet: KubeletAccess | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        self.usage = Usage(0.5, 2**30)  # of each pod
        self.readings: dict[SeriesKey, float] = {}  # each second
        given = AgentSettings(node_name=NODE, state_dir=str(directory), cold_start_seconds=0, **settings)
        self.cache = MetricCache(clock=self.clock)
        self.predict_server = predict_server(directory, self.cache, self.clock, cold_start_seconds=0)
        self.client = client = Client(Connection(server.url), "test", retry=ONCE, clock=self.clock)
        self.states = StatesInformer(
            client,
            NODE,
            registry=self.registry,
            on_spec=lambda _: None,
            kubelet=kubelet,
            monotonic=self.clock.monotonic,
        )
        self.reporter = Reporter(
            given,
            client,
            self.states,
            self.cache,
            self.predict_server,
            self.clock,
            registry=self.registry,
        )
        self.schedule = Schedule(self.clock.monotonic(), first_after=30.0)
        self._server = server
        self._loops = Loops()
        self.states.start(self._loops)
        eventually(lambda: self.states.synced and self.states.has_node_metric and len(self.states.pods()) == pods)

    def pass_seconds(self, count: int) -> None:
        """Each with a sample and a look, each thirtieth with a training step."""
        for _ in range(count):
            self.clock.advance(1)
            usages = {pod.uid: self.usage for pod in self.states.pods()}
            self.cache.append(self.cache.second(), entities(Usage(0.25, 2**30), **usages), self.readings)
            if self.clock.monotonic() % 30 == 0:
                self.predict_server.train(self.states.pods())
            self.reporter.look(self.schedule)

    def value(self, metric: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"headroom_agent_{metric}", labels)

    def close(self) -> None:
        """And its server."""
        self._server.close()
        self._loops.close()


def objects(pods: int = 1, **spec: object) -> dict[str, list[Any]]:
    container = {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    return {
        "nodes": [named(NODE, 1, status={"allocatable": {"cpu": "8", "memory": "32Gi"}})],
        "pods": [
            named(f"pod-{number}", 1, spec={"priority": 9000, "containers": [container]}) for number in range(pods)
        ],
        "nodemetrics": [named(NODE, 1, spec=json.loads(json.dumps(spec)))],
    }
