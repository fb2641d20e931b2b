"""The expanders that come with Headroom, as `contract.Expander`. Each keeps the best, ties included, in order."""

import math
from collections.abc import Callable, Sequence

from manager.autoscaler.expander import priority, ranking
from manager.autoscaler.expander.contract import ExpanderContext
from manager.autoscaler.expander.option import Option
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings


class _Lowest:
    """The options of the lowest value."""

    def __init__(self, value: Callable[[Option], float]) -> None:
        self._value = value

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> list[Option]:
        values = [self._value(option) for option in options]
        lowest = min(values, default=math.inf)
        return [option for option, each in zip(options, values, strict=True) if each == lowest < math.inf]


def most_pods(_: AutoscalerSettings) -> _Lowest:
    return _Lowest(_missed_pods)


def least_nodes(_: AutoscalerSettings) -> _Lowest:
    """An option without nodes is no option."""
    return _Lowest(_node_count)


def least_waste(_: AutoscalerSettings) -> _Lowest:
    """The smallest share of the new capacity that stays idle, cpu and memory added up."""
    return _Lowest(_waste)


class PriceExpander:
    """The options of the lowest cost-based rank; see `ranking`."""

    def __init__(self, _: AutoscalerSettings) -> None:
        pass

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> list[Option]:
        return ranking.best_options([context.ranks[each.group] for each in options])


class PriorityExpander:
    """The options of the highest priority; see `priority`."""

    def __init__(self, _: AutoscalerSettings) -> None:
        pass

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> list[Option]:
        return priority.choose(options, context.priorities).options


def _missed_pods(option: Option) -> float:
    return -option.pod_count


def _node_count(option: Option) -> float:
    return option.node_count or math.inf


def _waste(option: Option) -> float:
    return _idle(option, "cpu") + _idle(option, "memory")


def _idle(option: Option, resource: str) -> float:
    capacity = option.machine.capacity.get(resource, 0) * option.node_count
    return (capacity - option.requested(resource)) / capacity if capacity else 0.0
