"""`headroom explain node`: every term of a node's offers, from a live cluster or from kubectl's output.

Both use the manager's own pure functions, as if the manager had just started; only a running manager knows what it has
learned and written since. Files are explained as of the newest time at which one of their objects was created, changed
or reported.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from deploy import dumps, rendering
from deploy.access import CURRENT, ClusterContext
from deploy.dump_heads import Head
from deploy.nodeside import ConfigKey, NodeSide
from manager.nodeside import answers
from manager.nodeside.answers import Explained
from manager.nodeside.decisions import KnownNode, Pending
from manager.nodeside.eviction import shortfall
from manager.nodeside.eviction.tracker import TrackedShortfall
from manager.nodeside.noderesource import explain, writing
from manager.nodeside.noderesource.writing import NodeWriteRule, WriteRule
from shared import explanation, names
from shared.api.core import ConfigMap, Node, Pod
from shared.api.nodemetric import NodeMetric
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODS

if TYPE_CHECKING:
    from deploy.manager_api import ManagerApi

_KINDS: dict[str, type[msgspec.Struct]] = {"Node": Node, "NodeMetric": NodeMetric, "Pod": Pod, "ConfigMap": ConfigMap}


@dataclass
class Objects:
    """The objects behind an explanation; `now` in Unix seconds. Without a `config_map` the defaults apply."""

    source: str
    now: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    metrics: dict[str, NodeMetric] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    config_map: ConfigMap | None = None
    tells_of_pods: bool = True


def node(
    name: str, *, files: Sequence[Path], access: ClusterContext, style: str, config_key: ConfigKey | None = None
) -> str:
    """The answer, ready to print. Raises InvalidInput, and API errors."""
    key = config_key or ConfigKey()
    objects = from_files(name, files, key) if files else from_cluster(name, access, key)
    found = objects.nodes.get(name)
    if found is None:
        problem = f"there is no such node{_listed(objects.nodes) if files else ''}"
        raise InvalidInput(source=objects.source, field="Node", value=name, problem=problem)
    rendered = _rendered(answers.explained(_state(objects, found)), style)
    if style == "table" and objects.config_map is None:
        rendered += f"\nThere is no ConfigMap {key.namespace}/{key.name}, so the defaults apply"
    if style == "table" and not objects.tells_of_pods:
        rendered += "\nThere is no Pod in the files, so none is counted"
    return rendered


def by_manager(
    name: str,
    url: str,
    *,
    style: str,
    access: ClusterContext = CURRENT,
    namespace: str = names.INSTALL_NAMESPACE,
) -> str:
    """The manager's own answer, ready to print. Raises HeadroomError without one."""
    from deploy.manager_api import ManagerApi  # here, as clusters and files are explained without

    with contextlib.closing(ManagerApi(url, access, namespace)) as api:
        return asked(api, name, style)


def asked(api: "ManagerApi", name: str, style: str) -> str:
    """The same by a connection that is open. Raises HeadroomError without an answer."""
    return _rendered(api.read(f"/api/v1/nodes/{quote(name, safe='')}", Explained), style)


def from_cluster(name: str, access: ClusterContext, config_key: ConfigKey) -> Objects:
    """What the API server knows of one node now."""
    connection = access.connection()
    client = Client(connection, "headroom-explain").single_attempt()
    objects = Objects(source=connection.server.rpartition("@")[2], now=time.time())
    with contextlib.suppress(NotFound):  # the caller reports a missing node; a missing NodeMetric means no report yet
        objects.nodes[name] = client.get(NODES, name, into=Node)
        objects.metrics[name] = client.get(NODEMETRICS, name, into=NodeMetric)
    objects.pods = client.list(PODS, into=Pod, field_selector=f"spec.nodeName={name}").items
    with contextlib.suppress(NotFound):  # the defaults apply
        objects.config_map = client.get(CONFIGMAPS, config_key.name, config_key.namespace, into=ConfigMap)
    return objects


def from_files(name: str, files: Sequence[Path], config_key: ConfigKey) -> Objects:
    """What the files hold about one node; irrelevant kinds are ignored. Raises InvalidInput."""

    def wanted(kind: str, head: Head) -> bool:
        match kind:
            case "Pod":
                return head.node_name == name
            case "ConfigMap":
                return head.metadata.name == config_key.name
        return True

    dump = dumps.read(files, _KINDS, wanted)
    return Objects(
        source=dump.source,
        now=dump.now,
        nodes={each.metadata.name: each for each in dump.of(Node)},
        metrics={each.metadata.name: each for each in dump.of(NodeMetric)},
        pods=dump.of(Pod),
        config_map=dump.config_map(config_key.namespace, config_key.name),
        tells_of_pods=dump.counts["Pod"] > 0,
    )


def _listed(nodes: Iterable[str]) -> str:
    return f" (nodes: {rendering.names(sorted(nodes)) or 'none'})"


def _state(objects: Objects, found: Node) -> KnownNode:
    """The state of the node in a manager that has just started."""
    name = found.metadata.name
    side = NodeSide(objects.nodes.values(), objects.metrics.values(), objects.pods, objects.config_map, objects.now)
    strategy, decision, pods = side.strategy(found), side.decision(name), side.pods(name)
    rule = NodeWriteRule.from_strategy(
        strategy.strategy, kind=WriteRule.DAMPED, now=objects.now, last_write=objects.now
    )
    outcome = writing.plan(found, decision.offers, rule, obsolete=explain.obsolete_annotations(decision))
    pending = None if outcome is None else Pending(outcome.why)
    shortfalls = {
        tier: TrackedShortfall(name, tier, each, decision, 0.0, None, strategy.strategy.eviction_seconds(tier))
        for tier, each in shortfall.find(decision, pods).items()
    }
    return KnownNode(
        found,
        side.requested(name),
        decision,
        last_write=None,
        pending=pending,
        strategy=strategy,
        shortfalls=shortfalls,
    )


def _rendered(explained: Explained, style: str) -> str:
    return _table(explained) if style == "table" else rendering.structured(explained, style)


def _table(explained: Explained) -> str:
    lines = [("", "TERM", "VALUE", "TIME", "SOURCE")]
    said = [_summary(explained)]
    for tier, of in explained.tiers.items():
        said.append(f"{tier.title()}: {of.reason}")
        if of.shortfall is not None:
            said.append(f"{tier.title()} is short: {of.shortfall.reason}")
        for resource, unit, row in (("cpu", "milli", of.cpu), ("memory", "bytes", of.memory)):
            deciding = re.split(r" [+-] ", row.bound)
            lines += [
                (
                    "*" if term.name in deciding else "",
                    term.name,
                    explanation.amount(term.value, term.unit),
                    term.time or "",
                    term.source,
                )
                for term in row.terms
            ]
            result = explanation.amount(row.result, unit)
            lines.append(("=", f"{tier.title()} {resource} (by {row.bound})", result, "", ""))
    pending = [] if explained.pending is None else [f"Not written to the Node yet: {explained.pending.reason}"]
    legend = "* decides the result, = is the result."
    waits = [f"{each.sentence}." for each in explained.prod_waits]
    return "\n".join([*said, *waits, *rendering.aligned(lines), legend, *pending])


def _summary(explained: Explained) -> str:
    """The answer in a sentence."""
    node = f"Node {explained.node}" + (f" of cluster {explained.cluster}" if explained.cluster else "")
    offers = []
    for tier, of in explained.tiers.items():
        cpu, memory = explanation.amount(of.cpu.result, "milli"), explanation.amount(of.memory.result, "bytes")
        offers.append(
            f"{f'{cpu} CPU and {memory}' if of.cpu.result or of.memory.result else 'nothing'} as {tier.title()}"
        )
    return f"{node} can offer {', '.join(offers)}."
