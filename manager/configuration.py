"""The colocation configuration in effect: the last one that could be read, whatever stands in the ConfigMap now."""

from dataclasses import dataclass

from shared import names
from shared.api import colocation
from shared.api.colocation import ColocationConfig, NodeStrategy
from shared.api.core import ConfigMap, Node
from shared.errors import InvalidInput

_DEFAULT = ColocationConfig()


@dataclass(frozen=True)
class Configuration:
    """`available` once anything could be read; `settled` when that came from a ConfigMap, and nothing newer failed.

    `problem` is what is wrong with the newest version of the ConfigMap, which then is not the one in effect.
    """

    config: ColocationConfig = _DEFAULT
    available: bool = False
    settled: bool = False
    problem: InvalidInput | None = None

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


def after(previous: Configuration, config_map: ConfigMap | None, *, source: str) -> Configuration:
    """The configuration once the ConfigMap says this; without a ConfigMap, or the key in it, it is the defaults."""
    if config_map is None:
        return Configuration(available=True)
    text = (config_map.data or {}).get(names.CONFIG_KEY_COLOCATION, "")
    try:
        config = colocation.parse(text, source=f"{source} {names.CONFIG_KEY_COLOCATION}")
    except InvalidInput as problem:
        return Configuration(previous.config, available=previous.available, settled=False, problem=problem)
    return Configuration(config, available=True, settled=True)
