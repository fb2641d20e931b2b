"""The policy in effect: the last readable value of each key, whatever the ConfigMap holds now."""

from dataclasses import dataclass

from shared import names
from shared.api import colocation, thresholds
from shared.api.colocation import ColocationConfig, NodeStrategy
from shared.api.core import ConfigMap, Node
from shared.api.nodemetric_spec import ResourceThresholds
from shared.api.thresholds import ThresholdConfig
from shared.errors import InvalidInput

_DEFAULT = ColocationConfig()
_NO_THRESHOLDS = ThresholdConfig()


@dataclass(frozen=True)
class ClusterPolicy:
    """`available` once any policy was readable; `settled` if it came from a ConfigMap, and no newer version
    failed.

    `problem` is the error of the ConfigMap's newest version, which then is not in effect; `thresholds_problem` is the
    error of its thresholds.
    """

    config: ColocationConfig = _DEFAULT
    available: bool = False
    settled: bool = False
    problem: InvalidInput | None = None
    thresholds: ThresholdConfig = _NO_THRESHOLDS
    thresholds_problem: InvalidInput | None = None

    @property
    def problems(self) -> tuple[InvalidInput, ...]:
        return tuple(each for each in (self.problem, self.thresholds_problem) if each is not None)

    @property
    def enabled(self) -> bool:
        return self.config.cluster.enable

    def strategy(self, node: Node) -> NodeStrategy | None:
        """The strategy for `node`; None while no policy was readable."""
        if not self.available:
            return None
        meta = node.metadata
        return colocation.for_node(self.config, name=meta.name, labels=meta.labels, annotations=meta.annotations)

    def thresholds_of(self, node: Node) -> ResourceThresholds:
        return self.thresholds.of(node.metadata.labels)


def next_policy(previous: ClusterPolicy, config_map: ConfigMap | None, *, source: str) -> ClusterPolicy:
    """The policy after this version of the ConfigMap; the defaults without a ConfigMap, or without the key."""
    if config_map is None:
        return ClusterPolicy(available=True)
    data = config_map.data or {}
    held, held_problem = _thresholds(previous, data.get(names.CONFIG_KEY_THRESHOLDS, ""), source)
    text = data.get(names.CONFIG_KEY_COLOCATION, "")
    try:
        config = colocation.parse(text, source=f"{source} {names.CONFIG_KEY_COLOCATION}")
    except InvalidInput as problem:
        return ClusterPolicy(previous.config, previous.available, False, problem, held, held_problem)
    return ClusterPolicy(config, True, True, None, held, held_problem)


def _thresholds(previous: ClusterPolicy, text: str, source: str) -> tuple[ThresholdConfig, InvalidInput | None]:
    try:
        return thresholds.parse(text, source=f"{source} {names.CONFIG_KEY_THRESHOLDS}"), None
    except InvalidInput as problem:
        return previous.thresholds, problem
