"""The expanders that compare only the options; each keeps the best, ties included, in the given order."""

from collections.abc import Callable, Sequence

from manager.autoscaler.expander.option import Option


def most_pods(options: Sequence[Option]) -> list[Option]:
    """The options that take the most pods."""
    return _lowest(options, lambda option: -option.pod_count)


def least_nodes(options: Sequence[Option]) -> list[Option]:
    """The options that need the fewest nodes."""
    return _lowest([option for option in options if option.node_count], lambda option: option.node_count)


def least_waste(options: Sequence[Option]) -> list[Option]:
    """The options that leave the smallest share of new capacity idle, cpu and memory added up."""
    return _lowest(options, lambda option: _idle(option, "cpu") + _idle(option, "memory"))


def _idle(option: Option, resource: str) -> float:
    capacity = option.machine.capacity.get(resource, 0) * option.node_count
    return (capacity - option.requested(resource)) / capacity if capacity else 0.0


def _lowest(options: Sequence[Option], value: Callable[[Option], float]) -> list[Option]:
    values = [value(option) for option in options]
    lowest = min(values, default=None)
    return [option for option, each in zip(options, values, strict=True) if each == lowest]
