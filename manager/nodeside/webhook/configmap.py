"""Denies a colocation configuration, or thresholds of use, that could not take effect as written.

It uses the parsers with which the manager reads each key: it denies what the manager would refuse, or report as a
problem of a node config.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from manager.nodeside.noderesource import batch, mid
from manager.nodeside.webhook import reviews
from manager.nodeside.webhook.reviews import AdmissionAnswer, AdmissionRequest
from shared import names
from shared.api import colocation, thresholds
from shared.api.colocation import ColocationConfig, ColocationStrategy
from shared.api.core import ConfigMap, Node
from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput, shown
from shared.kube.resources import CONFIGMAPS

_MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)
_CONFIG_MAP = msgspec.json.Decoder(ConfigMap)

# The valid values of fields whose other values the manager, like Koordinator, replaces by the first of these.
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

    def review(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Denies a key that was changed to something that would not take effect."""
        if not request.is_about(CONFIGMAPS.group, CONFIGMAPS.plural, (reviews.CREATE, reviews.UPDATE)) or (
            request.namespace,
            request.name,
        ) != (self._namespace, self._name):
            return AdmissionAnswer()
        try:
            data, before = _data(request.object), _data(request.old_object)
        except _MALFORMED as error:
            return AdmissionAnswer(warnings=(f"not checked, since it cannot be read: {error}",))
        judges = {names.CONFIG_KEY_COLOCATION: self._colocation, names.CONFIG_KEY_THRESHOLDS: self._thresholds}
        answers = [
            judged(text, f"ConfigMap {self._namespace}/{self._name} {key}")
            for key, judged in judges.items()
            if (text := data.get(key, "")).strip() and text != before.get(key, "")
        ]
        return AdmissionAnswer(
            denied="; ".join(each.denied for each in answers if each.denied is not None) or None,
            warnings=tuple(warning for each in answers for warning in each.warnings),
        )

    def _colocation(self, text: str, source: str) -> AdmissionAnswer:
        try:
            config = colocation.parse(text, source=source)
        except InvalidInput as problem:
            return AdmissionAnswer(denied=str(problem))
        if config.problems:
            return AdmissionAnswer(denied="; ".join(map(str, config.problems)))
        selectors = [each.selector for each in config.node_configs]
        return AdmissionAnswer(
            warnings=(*_meaningless(config), *_conflicts(colocation.NODE_CONFIGS, selectors, self._nodes))
        )

    def _thresholds(self, text: str, source: str) -> AdmissionAnswer:
        try:
            config = thresholds.parse(text, source=source)
        except InvalidInput as problem:
            return AdmissionAnswer(denied=str(problem))
        selectors = [selector for selector, _ in config.nodes]
        return AdmissionAnswer(warnings=tuple(_conflicts(thresholds.NODES, selectors, self._nodes)))


def _meaningless(config: ColocationConfig) -> Iterator[str]:
    """Values that count as another one, each with its field."""
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


def _conflicts(
    field: str, selectors: Sequence[LabelSelector | None], nodes: Callable[[], Iterable[Node]]
) -> Iterator[str]:
    """The first node that several parts of `field` select; the first part wins."""
    if len(selectors) < 2:
        return
    for node in nodes():
        labels = node.metadata.labels or {}
        matching = [
            f"{field}[{index}]"
            for index, selector in enumerate(selectors)
            if selector is not None and selector.matches(labels)
        ]
        if len(matching) > 1:
            yield f"Node {node.metadata.name} is selected by {' and '.join(matching)}; the first one counts"
            return


def _data(raw: msgspec.Raw) -> Mapping[str, str]:
    """The values by key; empty without a ConfigMap."""
    if bytes(raw) in (b"", b"null"):
        return {}
    return _CONFIG_MAP.decode(raw).data or {}
