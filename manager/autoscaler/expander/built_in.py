"""The expanders that come with Headroom, as `contract.Expander`. Each keeps the best, ties included, in order."""

from collections.abc import Callable, Sequence

from manager.autoscaler.expander import priority, ranking, strategies
from manager.autoscaler.expander.contract import ExpanderContext
from manager.autoscaler.expander.option import Option
from manager.autoscaler.settings import AutoscalerSettings


class _ByOptions:
    """An expander that compares only the options."""

    def __init__(self, keep: Callable[[Sequence[Option]], list[Option]]) -> None:
        self._keep = keep

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> list[Option]:
        return self._keep(options)


def most_pods(_: AutoscalerSettings) -> _ByOptions:
    return _ByOptions(strategies.most_pods)


def least_nodes(_: AutoscalerSettings) -> _ByOptions:
    return _ByOptions(strategies.least_nodes)


def least_waste(_: AutoscalerSettings) -> _ByOptions:
    return _ByOptions(strategies.least_waste)


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
