"""A colocation configuration that could not take effect as written is not taken.

The judge is the parser that the manager reads it with: what is denied here is what the manager would refuse, or report
as a problem of a node config.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

import msgspec

from manager.noderesource import batch, mid
from manager.webhook import reviews
from manager.webhook.reviews import Answer, Request
from shared import names
from shared.api import colocation
from shared.api.colocation import ColocationConfig, ColocationStrategy
from shared.api.core import ConfigMap, Node
from shared.errors import InvalidInput, shown
from shared.kube.resources import CONFIGMAPS

_MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)
_CONFIG_MAP = msgspec.json.Decoder(ConfigMap)

# What has a meaning, of the fields whose other values the manager takes as Koordinator does: by the first of these.
_MEANINGFUL = {
    "cpu_calculate_policy": ("cpuCalculatePolicy", (batch.USAGE, batch.MAX_USAGE_REQUEST)),
    "memory_calculate_policy": ("memoryCalculatePolicy", (batch.USAGE, batch.REQUEST, batch.MAX_USAGE_REQUEST)),
    "mid_reclaim_mode": ("midReclaimMode", ("dynamic", mid.STATIC)),
}


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
        if config.problems:
            return Answer(denied="; ".join(map(str, config.problems)))
        return Answer(warnings=(*_meaningless(config), *itertools.islice(_conflicts(config, self._nodes()), 1)))


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
