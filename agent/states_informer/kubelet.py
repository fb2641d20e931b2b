"""Reads the node's pods from its kubelet, including pods that the API server lacks, or cannot deliver just now."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from agent.settings import AgentSettings
from agent.states_informer.pods import NodePod, describe
from agent.states_informer.refusals import Refusals
from shared.api.core import Pod
from shared.errors import HeadroomError, InvalidInput
from shared.kube import config, objects
from shared.kube.config import Connection, Credentials, StaticToken, TokenFile
from shared.kube.errors import InvalidResponse
from shared.kube.http import SocketTransport
from shared.metric_families import CounterFamily
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

PATH = "/pods"
CLUSTER_CA = config.SERVICE_ACCOUNT_DIR / "ca.crt"
TIMEOUT_SECONDS = 3.0
LOST_SECONDS = 300.0  # without a good answer, after which the last one no longer counts
EMPTY_ANSWERS = 3  # in a row until one is accepted: a kubelet that has just started knows no pods yet

_KUBELET_POLLS = CounterFamily(
    "headroom_agent_kubelet_polls", "Requests for the kubelet's list of pods, by outcome.", ("outcome",)
)


@dataclass(frozen=True)
class KubeletAccess:
    """The kubelet's address, and the time between two requests for its pods."""

    connection: Connection
    interval_seconds: float = 10.0


def access(settings: AgentSettings, cluster_ca: Path = CLUSTER_CA) -> KubeletAccess | None:
    """The access to the kubelet's pods by the settings; None if pods do not come from the kubelet. Raises InvalidInput.

    In a pod, the cluster's authority verifies the kubelet, unless the settings name another one.
    """
    if settings.pods_source != "kubelet":
        return None
    url, ca_file = settings.kubelet_url, settings.kubelet_ca_file
    if not url.startswith(("https://", "http://")):
        raise InvalidInput(
            source="settings", field="kubeletUrl", value=url, problem="expected a URL of the form https://host:port"
        )
    if ca_file and not Path(ca_file).is_file():
        raise InvalidInput(source="settings", field="kubeletCaFile", value=ca_file, problem="is no file")
    if not ca_file and cluster_ca.is_file():
        ca_file = str(cluster_ca)
    connection = Connection(
        server=url,
        credentials=_credentials(settings.kubelet_token_file),
        ca_file=ca_file or None,
    )
    return KubeletAccess(connection)


def _credentials(token_file: str) -> Credentials:
    if token_file:
        return TokenFile(Path(token_file))
    own = config.in_cluster()
    return own.credentials if own else StaticToken()


class KubeletPods:
    """Polls the whole list. Without a good answer the last one stays, and is eventually not `synced`.

    A pod with an invalid state keeps its previous one. Raises InvalidInput for an invalid address.
    """

    def __init__(
        self,
        kubelet: KubeletAccess,
        node_name: str,
        refusals: Refusals,
        *,
        registry: CollectorRegistry,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = SocketTransport(kubelet.connection, "headroom-agent")
        self._interval_seconds = kubelet.interval_seconds
        self._node_name = node_name
        self._refusals = refusals
        self._monotonic = monotonic
        self._listed_at: float | None = None  # when the last good list came
        self._pods: dict[str, NodePod] = {}  # replaced as a whole, never changed
        self._refused: dict[str, str] = {}  # key -> resourceVersion
        self._body = b""
        self._empty_answers = 0
        self._failing = False
        self._polls = _KUBELET_POLLS.register(registry)

    def start(self, loops: Loops) -> None:
        loops.every("kubelet pods", lambda: self._interval_seconds, self.poll)

    @property
    def synced(self) -> bool:
        listed_at = self._listed_at
        return listed_at is not None and self._monotonic() - listed_at <= LOST_SECONDS

    def pods(self) -> list[NodePod]:
        return list(self._pods.values())

    def poll(self) -> None:
        """Polls once."""
        try:
            believed = self._read(self._transport.request("GET", PATH, timeout_seconds=TIMEOUT_SECONDS).body)
        except HeadroomError as error:
            self._polls.labels("failed").inc()
            log = logger.debug if self._failing else logger.error
            log("the kubelet's pods cannot be read: %s", error)
            self._failing = True
            return
        self._polls.labels("read" if believed else "empty").inc()
        self._failing = False
        if believed:
            self._listed_at = self._monotonic()

    def _read(self, body: bytes) -> bool:
        """Stores a list; False for an empty one that is not accepted yet. Raises InvalidResponse."""
        if body == self._body:
            self._empty_answers = 0
            return True
        page = objects.decode_page(body, Pod)
        foreign = next((pod for pod in page.items if pod.spec.node_name not in ("", self._node_name)), None)
        if foreign is not None:
            raise InvalidResponse(f"pod {foreign.metadata.key} is of node {foreign.spec.node_name!r}")
        self._empty_answers = 0 if page.items or page.refused else self._empty_answers + 1
        if 0 < self._empty_answers < EMPTY_ANSWERS:
            return False
        self._take(page.items, {one.key: (one.resource_version, one.reason) for one in page.refused})
        self._body = body
        return True

    def _take(self, items: Iterable[Pod], malformed: dict[str, tuple[str, str]]) -> None:
        before = self._pods
        pods = {key: before[key] for key in malformed if key in before}
        refused = {key: version for key, (version, _) in malformed.items()}
        for key, (version, problem) in malformed.items():
            if self._refused.get(key) != version:
                self._refusals.refuse("Pod", key, problem)
        for pod in items:
            key, old = pod.metadata.key, before.get(pod.metadata.key)
            if old is not None and old.pod == pod:
                pods[key] = old  # the same object, so that comparisons see no change
            elif (described := self._described(key, pod)) is not None:
                pods[key] = described
            else:
                refused[key] = pod.metadata.resource_version
                if old is not None and old.uid == pod.metadata.uid:
                    pods[key] = old
        self._pods, self._refused = pods, refused

    def _described(self, key: str, pod: Pod) -> NodePod | None:
        if self._refused.get(key) == pod.metadata.resource_version:
            return None  # logged already
        return self._refusals.accepted("Pod", key, pod, describe)
