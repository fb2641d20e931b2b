"""`headroom explain node`: every term of what a node offers, from a live cluster or from what kubectl printed.

Both ways end in the manager's own pure functions. A file is as true as the moment it was written, so files are
explained as of the newest instant that stands in them.
"""

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from manager import answers, configuration
from manager.answers import Explained
from manager.configuration import Configuration
from manager.decisions import NodeState, Pending
from manager.eviction import shortfall
from manager.eviction.tracker import Tracked
from manager.noderesource import explain, report, writing
from manager.noderesource.explain import Known
from manager.noderesource.writing import Rule, WriteRule
from manager.pods import PodLedger, record
from shared import durations, explanation, names
from shared.api.colocation import NodeStrategy
from shared.api.core import ConfigMap, Node, Pod
from shared.api.nodemetric import NodeMetric
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODS

T = TypeVar("T", Node, NodeMetric, Pod, ConfigMap)
STDIN = Path("-")

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class _Strings(yaml.SafeLoader):
    """YAML without timestamps: an instant stays the text it is in Kubernetes."""


_Strings.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass
class Objects:
    """What an explanation is made from; `now` in Unix seconds."""

    source: str
    now: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    metrics: dict[str, NodeMetric] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    config_map: ConfigMap | None = None


def node(name: str, *, files: Sequence[Path], kubeconfig: Path | None, style: str) -> str:
    """The answer, ready to print. Raises InvalidInput, and what the API server answers."""
    objects = from_files(files) if files else from_cluster(name, kubeconfig)
    found = objects.nodes.get(name)
    if found is None:
        known = ", ".join(sorted(objects.nodes)) or "none"
        raise InvalidInput(source=objects.source, field="Node", value=name, problem=f"not there (nodes: {known})")
    return _rendered(answers.explained(_state(objects, found)), style)


def from_cluster(name: str, kubeconfig: Path | None) -> Objects:
    """What the API server says of one node now."""
    connection = config.discover(str(kubeconfig) if kubeconfig else None)
    client = Client(connection, "headroom-explain").single_attempt()
    objects = Objects(source=connection.server.rpartition("@")[2], now=time.time())
    with contextlib.suppress(NotFound):  # no such node, which the caller says, or nothing reported of it yet
        objects.nodes[name] = client.get(NODES, name, into=Node)
        objects.metrics[name] = client.get(NODEMETRICS, name, into=NodeMetric)
    objects.pods = client.list(PODS, into=Pod, field_selector=f"spec.nodeName={name}").items
    with contextlib.suppress(NotFound):  # the defaults hold
        objects.config_map = client.get(CONFIGMAPS, names.CONFIG_MAP, names.INSTALL_NAMESPACE, into=ConfigMap)
    return objects


def from_files(files: Sequence[Path]) -> Objects:
    """Everything the files hold; kinds that do not matter here are passed over. Raises InvalidInput."""
    objects = Objects(source=", ".join(map(str, files)))
    for path in files:
        text = _read(path)
        for index, document in enumerate(_documents(path, text)):
            _take(objects, document, source=str(path), where=f"document {index}")
        instants = [durations.instant(match[0]) for match in _INSTANT.finditer(text)]
        objects.now = max([objects.now, *instants])
    return objects


def _take(objects: Objects, document: object, *, source: str, where: str) -> None:
    if not isinstance(document, dict) or "kind" not in document:
        raise InvalidInput(source=source, field=where, value=document, problem="not a Kubernetes object (no kind)")
    match document["kind"]:
        case "Node":
            made = _converted(document, Node, source=source, where=where)
            objects.nodes[made.metadata.name] = made
        case "NodeMetric":
            metric = _converted(document, NodeMetric, source=source, where=where)
            objects.metrics[metric.metadata.name] = metric
        case "Pod":
            objects.pods.append(_converted(document, Pod, source=source, where=where))
        case "ConfigMap" if document.get("metadata", {}).get("name") == names.CONFIG_MAP:
            objects.config_map = _converted(document, ConfigMap, source=source, where=where)
        case str() as kind if kind.endswith("List"):
            for index, item in enumerate(document.get("items") or ()):
                _take(objects, item, source=source, where=f"{where} items[{index}]")


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(source="-f", field="file", value=str(path), problem=str(error)) from error


def _documents(path: Path, text: str) -> Iterator[object]:
    try:
        for document in yaml.load_all(text, _Strings):
            if document is not None:
                yield document
    except yaml.YAMLError as error:
        raise InvalidInput(source=str(path), field="(document)", value="", problem=str(error)) from error


def _converted(document: dict[str, Any], kind: type[T], *, source: str, where: str) -> T:
    try:
        return msgspec.json.decode(msgspec.json.encode(document), type=kind)
    except (TypeError, OverflowError) as error:  # what YAML has and JSON does not
        raise InvalidInput(source=source, field=where, value=document, problem=str(error)) from error
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        path = path.rstrip("`")
        raise InvalidInput(
            source=source, field=f"{where} {kind.__name__} {path}", value=_at(document, path), problem=problem
        ) from error


def _at(document: object, path: str) -> object:
    """The value at a path like "status.allocatable[...]", as far as it goes."""
    for key in path.replace("[...]", "").split("."):
        document = document.get(key) if isinstance(document, dict) else document
    return document


def _state(objects: Objects, found: Node) -> NodeState:
    """What a manager that has just started would make of the node."""
    name = found.metadata.name
    metric, strategy = objects.metrics.get(name), _strategy(objects, found)
    ledger = PodLedger()
    for pod in objects.pods:
        ledger.replace(None, record(pod))
    pods = ledger.on(name)
    known = Known.of(ledger.requested(name), pods)
    decision = explain.decide(found, None if metric is None else report.read(metric), known, strategy, objects.now)
    rule = Rule.of(strategy.strategy, kind=WriteRule.DAMPED, now=objects.now, last_write=objects.now)
    outcome = writing.plan(found, decision.offers, rule, annotations=explain.annotations(found, decision))
    pending = None if outcome is None else Pending(outcome.why)
    shortfalls = {
        tier: Tracked(name, tier, each, decision, 0.0, None, strategy.strategy.eviction_seconds(tier))
        for tier, each in shortfall.find(decision, pods).items()
    }
    return NodeState(
        found, known.requested, decision, last_write=None, pending=pending, strategy=strategy, shortfalls=shortfalls
    )


def _strategy(objects: Objects, found: Node) -> NodeStrategy:
    source = f"ConfigMap {names.CONFIG_MAP}"
    current = configuration.after(Configuration(), objects.config_map, source=source)
    if current.problem is not None:
        raise current.problem
    strategy = current.strategy(found)
    assert strategy is not None, "a configuration without a problem has a strategy for every node"
    return strategy


def _rendered(explained: Explained, style: str) -> str:
    if style == "table":
        return _table(explained)
    answer = msgspec.to_builtins(explained)
    if style == "yaml":
        return yaml.safe_dump(answer, sort_keys=False).rstrip()
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def _table(explained: Explained) -> str:
    lines = [("", "TERM", "VALUE", "TIME", "SOURCE")]
    said = [f"Node {explained.node}"]
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
                    term.time,
                    term.source,
                )
                for term in row.terms
            ]
            result = explanation.amount(row.result, unit)
            lines.append(("=", f"{tier.title()} {resource} (by {row.bound})", result, "", ""))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    rows = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    pending = [] if explained.pending is None else [f"Not on the Node: {explained.pending.reason}"]
    return "\n".join([*said, *rows, *pending])
