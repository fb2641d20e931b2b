"""A colocation configuration that could not take effect as written is not taken; the manager would pass it over.

The same parser decides that the manager reads it with. On top comes what Koordinator's webhook asks: closer bounds for
a few values, a selector for every node config, and none that another one's nodes match as well.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from manager.noderesource import batch, mid
from manager.webhook import reviews
from manager.webhook.reviews import Answer, Request
from shared import names
from shared.api import colocation
from shared.api.colocation import ColocationConfig, ColocationStrategy
from shared.api.core import ConfigMap, Node
from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput, shown
from shared.kube.resources import CONFIGMAPS

_MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)
_CONFIG_MAP = msgspec.json.Decoder(ConfigMap)

# What is allowed at run time, but surely meant otherwise: the largest value, and the field's name.
_CLOSER_BOUNDS = {
    "resource_diff_threshold": (1, "resourceDiffThreshold"),
    "mid_static_cpu_reserved_percent": (100, "midStaticCPUReservedPercent"),
    "mid_static_memory_reserved_percent": (100, "midStaticMemoryReservedPercent"),
}
# What has a meaning, of the fields whose other values the manager takes as Koordinator does: by the first of these.
_MEANINGFUL = {
    "cpu_calculate_policy": ("cpuCalculatePolicy", (batch.USAGE, batch.MAX_USAGE_REQUEST)),
    "memory_calculate_policy": ("memoryCalculatePolicy", (batch.USAGE, batch.REQUEST, batch.MAX_USAGE_REQUEST)),
    "mid_reclaim_mode": ("midReclaimMode", ("dynamic", mid.STATIC)),
}
_MOST_EXAMPLES = 64  # of the nodes that a selector is meant for


class ConfigAdmission:
    """Answers reviews of the one ConfigMap; `nodes` are those of the cluster."""

    def __init__(self, namespace: str, name: str, nodes: Callable[[], Iterable[Node]]) -> None:
        self._namespace = namespace
        self._name = name
        self._nodes = nodes

    def review(self, request: Request) -> Answer:
        """Denied when the key was changed to something that would not take effect."""
        if not request.is_about(CONFIGMAPS.group, CONFIGMAPS.plural, (reviews.CREATE, reviews.UPDATE)) or (
            request.namespace,
            request.name,
        ) != (self._namespace, self._name):
            return Answer()
        try:
            text, before = _text(request.object), _text(request.old_object)
        except _MALFORMED as error:
            return Answer(warnings=(f"not checked, since it cannot be read: {error}",))
        if text == before or not text.strip():
            return Answer()
        source = f"ConfigMap {self._namespace}/{self._name} {names.CONFIG_KEY_COLOCATION}"
        try:
            config = colocation.parse(text, source=source)
        except InvalidInput as problem:
            return Answer(denied=str(problem))
        if found := [*config.problems, *problems(config, source=source)]:
            return Answer(denied="; ".join(map(str, found)))
        return Answer(warnings=(*_meaningless(config), *itertools.islice(_conflicts(config, self._nodes()), 1)))


def problems(config: ColocationConfig, *, source: str) -> Iterator[InvalidInput]:
    """What Koordinator's webhook refuses in a configuration that can be read."""
    yield from _too_large(config.cluster, source, "")
    examples: dict[int, list[Mapping[str, str]]] = {}
    for index, node_config in enumerate(config.node_configs):
        field, selector = f"{colocation.NODE_CONFIGS}[{index}]", node_config.selector
        if node_config.strategy != config.cluster:
            yield from _too_large(node_config.strategy, source, f"{field}.")
        if selector is None or not (selector.match_labels or selector.match_expressions):
            problem = "must select nodes by a label at least"
            yield InvalidInput(source=source, field=f"{field}.nodeSelector", value=selector, problem=problem)
            continue
        for other, nodes in examples.items():
            mine = _examples(selector)
            before = config.node_configs[other].selector
            if any(selector.matches(node) for node in nodes) or any(before and before.matches(node) for node in mine):
                problem = f"its nodes are those of {colocation.NODE_CONFIGS}[{other}] as well"
                value = msgspec.to_builtins(selector)
                yield InvalidInput(source=source, field=f"{field}.nodeSelector", value=value, problem=problem)
        examples[index] = _examples(selector)


def _too_large(strategy: ColocationStrategy, source: str, prefix: str) -> Iterator[InvalidInput]:
    for name, (most, wire_name) in _CLOSER_BOUNDS.items():
        value = getattr(strategy, name)
        if value > most:
            yield InvalidInput(source=source, field=prefix + wire_name, value=value, problem=f"must be at most {most}")


def _meaningless(config: ColocationConfig) -> Iterator[str]:
    """Values that count as another one, each where it was set."""
    parts: list[tuple[str, ColocationStrategy, ColocationStrategy | None]] = [("", config.cluster, None)]
    parts += [
        (f"{colocation.NODE_CONFIGS}[{index}].", each.strategy, config.cluster)
        for index, each in enumerate(config.node_configs)
    ]
    for prefix, strategy, over in parts:
        for name, (wire_name, known) in _MEANINGFUL.items():
            value = getattr(strategy, name)
            if value and value not in known and value != getattr(over, name, None):
                expected = ", ".join(known)
                yield f"{prefix}{wire_name}: {shown(value)}: counts as {known[0]}, since it is none of {expected}"


def _examples(selector: LabelSelector) -> list[Mapping[str, str]]:
    """Labels of nodes that have what the selector names, and nothing else."""
    fixed = dict(selector.match_labels or {})
    choices: list[list[tuple[str, str]]] = []
    for requirement in selector.match_expressions or ():
        if requirement.operator == "In":
            choices.append([(requirement.key, value) for value in requirement.values or ()])
        elif requirement.operator == "Exists":
            fixed.setdefault(requirement.key, "")
    return [fixed | dict(chosen) for chosen in itertools.islice(itertools.product(*choices), _MOST_EXAMPLES)]


def _conflicts(config: ColocationConfig, nodes: Iterable[Node]) -> Iterator[str]:
    """Nodes that several node configs select, of which the first one counts."""
    if len(config.node_configs) < 2:
        return
    for node in nodes:
        labels = node.metadata.labels or {}
        matching = [
            f"{colocation.NODE_CONFIGS}[{index}]"
            for index, each in enumerate(config.node_configs)
            if each.selector is not None and each.selector.matches(labels)
        ]
        if len(matching) > 1:
            yield f"Node {node.metadata.name} is selected by {' and '.join(matching)}; the first one counts"


def _text(raw: msgspec.Raw) -> str:
    """The key's value; empty where there is no ConfigMap."""
    if bytes(raw) in (b"", b"null"):
        return ""
    return (_CONFIG_MAP.decode(raw).data or {}).get(names.CONFIG_KEY_COLOCATION, "")
