"""The agents of a live cluster: their pods, asked through the API server with the user's own right to pods/proxy.

The API server drops the credentials of a request that it passes on. So of the user's credentials only the token of
`--token-file` reaches an agent, in a separate header.

Labels prove nothing: a user who may create pods in any namespace could obtain the token, and lower the recommendations
of others. So agents must be in one namespace, and each answers for its own node alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from deploy.backtest.server import Access
from deploy.savings import from_agents
from deploy.savings.from_agents import AgentWeeks
from shared import access, names
from shared.api.core import Pod
from shared.errors import HeadroomError, shown
from shared.kube.client import Client
from shared.kube.errors import ApiError, Forbidden, ServerError, Unauthorized
from shared.kube.resources import PODS

LABELS = {names.LABEL_PART_OF: "headroom", names.LABEL_COMPONENT: "agent"}
PORT = 9316  # unless the pod says otherwise
TIMEOUT_SECONDS = 30.0
AT_A_TIME = 8
_SCHEMES = ("https", "http")  # the chart's default, and its value for `access.tls: false`


class FoundAgents(NamedTuple):
    """The agents' answers, and a sentence about agents without one."""

    weeks: Sequence[AgentWeeks]
    notes: Sequence[str]


@dataclass
class ProxiedAgent:
    """One agent's pod behind the API server."""

    client: Client
    namespace: str
    pod: str
    node: str
    port: int
    access: Access
    schemes: Sequence[str] = _SCHEMES

    @property
    def name(self) -> str:
        return f"agent {self.namespace}/{self.pod}"

    def asked(self, method: str, path: str, fields: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and content of an accepted request. Raises HeadroomError."""
        headers = {access.PASSED_ON_HEADER: token} if (token := self.access.authorization()) else {}
        while True:
            scheme, *others = self.schemes
            proxy = PODS.path(f"{scheme}:{self.pod}:{self.port}", self.namespace, "proxy")
            url = f"{proxy}{path}?{urlencode(fields)}" if fields else f"{proxy}{path}"
            try:
                return 200, bytes(self.client.read(url, into=msgspec.Raw, headers=headers))
            except ServerError:
                if not others:
                    raise
                self.schemes = others


def read(
    client: Client,
    pods: Collection[Pod],
    namespace: str,
    given: Access,
    came: Callable[[str], None] = lambda what: None,
) -> FoundAgents:
    """Queries the agents in `namespace`; `pods` are the cluster's. A failing agent leaves out its own node only."""
    once = client.single_attempt(TIMEOUT_SECONDS)
    node_of = {pod.metadata.key: pod.spec.node_name for pod in pods}
    agents = [
        ProxiedAgent(once, namespace, pod.metadata.name, pod.spec.node_name, _port(pod), given)
        for pod in sorted(pods, key=lambda pod: pod.metadata.name)
        if pod.metadata.namespace == namespace
        and all(pod.metadata.label(name) == value for name, value in LABELS.items())
        and pod.status.phase == "Running"
    ]
    if not agents:
        return FoundAgents((), ())
    came(f"{len(agents)} agents")
    first = _read(agents[0], node_of)
    if isinstance(first, Unauthorized | Forbidden):  # if one agent refuses, all do
        return FoundAgents((), (f"of the agents ({len(agents)}) none was asked: {_why(first)}",))
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="agents") as pool:
        answers = [first, *pool.map(lambda agent: _read(agent, node_of), agents[1:])]
    silent = [answer for answer in answers if isinstance(answer, HeadroomError)]
    notes = (f"{len(silent)} of {len(agents)} agents did not answer: {_why(silent[0])}",) if silent else ()
    return FoundAgents([answer for answer in answers if isinstance(answer, AgentWeeks)], notes)


def _read(agent: ProxiedAgent, node_of: Mapping[str, str]) -> AgentWeeks | HeadroomError:
    """The agent's usage of its node's pods, deleted ones included."""
    try:
        weeks = from_agents.read(agent)
    except HeadroomError as error:
        return error
    if weeks.node != agent.node:
        return HeadroomError(f"{agent.name} runs on {agent.node} and says that it is of {shown(weeks.node)}")
    own = {
        metric: {pod: week for pod, week in found.items() if node_of.get(pod, agent.node) == agent.node}
        for metric, found in weeks.pods.items()
    }
    return weeks._replace(pods=own)


def _why(error: HeadroomError) -> str:
    said = f"{error.status} {error.message}" if isinstance(error, ApiError) else str(error)
    if isinstance(error, Unauthorized):
        said += "; they want a token of their own (--token-file) of a user that may read Headroom"
    elif isinstance(error, Forbidden):
        said += "; it takes the right to get pods/proxy, and for agents with a token that of headroom-reader"
    return said


def _port(pod: Pod) -> int:
    """The port of the container `agent`, which may run beside others."""
    ports = [port for each in pod.spec.containers if each.name == "agent" for port in each.ports or ()]
    return ports[0].container_port if ports else PORT
