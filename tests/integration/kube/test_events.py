from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from shared.kube.client import Client
from shared.kube.events import WARNING, ObjectRef, Recorder
from shared.kube.resources import EVENTS
from shared.stop import Stop
from tests.support import eventually
from tests.support.apiserver import ApiServer

Start: TypeAlias = Callable[[Callable[[Stop], None]], Stop]


@pytest.fixture
def recorder(server: ApiServer) -> Recorder:
    """One of the manager's."""
    return Recorder(server.client(server.manager_connection()), "headroom-manager", "host-1")


def test_an_event_and_its_repetitions_are_one_object(
    client: Client, recorder: Recorder, install_namespace: str, start: Start
) -> None:
    start(recorder.run)
    pod = ObjectRef("v1", "Pod", "p", install_namespace, "u1")
    for _ in range(3):
        recorder.event(pod, WARNING, "PodRefused", "requests are not a quantity")

    def events() -> list[dict[str, Any]]:
        return client.list(EVENTS, install_namespace, field_selector="involvedObject.name=p").items

    eventually(lambda: [event["count"] for event in events()] == [3])
    (event,) = events()
    assert (event["type"], event["reason"]) == ("Warning", "PodRefused")
    assert event["involvedObject"]["uid"] == "u1"
    assert event["source"] == {"component": "headroom-manager", "host": "host-1"}


def test_events_about_a_node_are_in_the_default_namespace(client: Client, recorder: Recorder, start: Start) -> None:
    start(recorder.run)
    recorder.event(ObjectRef("v1", "Node", "a-node", uid="u"), WARNING, "MidReset", "stale")
    eventually(lambda: client.list(EVENTS, "default", field_selector="involvedObject.name=a-node").items)
