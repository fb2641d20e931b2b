"""The configuration in effect: of each key the last value that could be read, whatever stands in the ConfigMap now."""

from dataclasses import dataclass

from shared import names
from shared.api import colocation, thresholds
from shared.api.colocation import ColocationConfig, NodeStrategy
from shared.api.core import ConfigMap, Node
from shared.api.nodemetric import ResourceThresholds
from shared.api.thresholds import ThresholdConfig
from shared.errors import InvalidInput

_DEFAULT = ColocationConfig()
_NO_THRESHOLDS = ThresholdConfig()


@dataclass(frozen=True)
class Configuration:
    """`available` once anything could be read; `settled` when that came from a ConfigMap, and nothing newer failed.

    `problem` is what is wrong with the newest version of the ConfigMap, which then is not the one in effect; and
    `thresholds_problem` what is with its thresholds.
    """

    config: ColocationConfig = _DEFAULT
    available: bool = False
    settled: bool = False
    problem: InvalidInput | None = None
    thresholds: ThresholdConfig = _NO_THRESHOLDS
    thresholds_problem: InvalidInput | None = None

    @property
    def problems(self) -> tuple[InvalidInput, ...]:
        """What of the newest version is not in effect."""
        return tuple(each for each in (self.problem, self.thresholds_problem) if each is not None)

    @property
    def enabled(self) -> bool:
        """The cluster's master switch."""
        return self.config.cluster.enable

    def strategy(self, node: Node) -> NodeStrategy | None:
        """What holds for `node`; None as long as no configuration could be read."""
        if not self.available:
            return None
        meta = node.metadata
        return colocation.for_node(self.config, name=meta.name, labels=meta.labels, annotations=meta.annotations)

    def thresholds_of(self, node: Node) -> ResourceThresholds:
        """From which use on pods of the node are held down or evicted."""
        return self.thresholds.of(node.metadata.labels)


def after(previous: Configuration, config_map: ConfigMap | None, *, source: str) -> Configuration:
    """The configuration once the ConfigMap says this; without a ConfigMap, or the key in it, it is the defaults."""
    if config_map is None:
        return Configuration(available=True)
    data = config_map.data or {}
    held, held_problem = _thresholds(previous, data.get(names.CONFIG_KEY_THRESHOLDS, ""), source)
    text = data.get(names.CONFIG_KEY_COLOCATION, "")
    try:
        config = colocation.parse(text, source=f"{source} {names.CONFIG_KEY_COLOCATION}")
    except InvalidInput as problem:
        return Configuration(previous.config, previous.available, False, problem, held, held_problem)
    return Configuration(config, True, True, None, held, held_problem)


def _thresholds(previous: Configuration, text: str, source: str) -> tuple[ThresholdConfig, InvalidInput | None]:
    try:
        return thresholds.parse(text, source=f"{source} {names.CONFIG_KEY_THRESHOLDS}"), None
    except InvalidInput as problem:
        return previous.thresholds, problem
