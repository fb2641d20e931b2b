"""How rows are made: the shapes that the API publishes, of the decisions' own values."""

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")
ValueT = TypeVar("ValueT", str, tuple[str, ...])


def row_of(kind: type[RowT], source: object, **given: Any) -> RowT:
    """The row whose fields are what is `given`, and for the others the attributes of the `source` with their names.

    The published schemas, which tests hold the rows to, say what types the values have.
    """
    names = [each.name for each in fields(kind) if each.name not in given]
    return kind(**{name: getattr(source, name) for name in names}, **given)


def by_value(pairs: Iterable[tuple[str, ValueT]]) -> dict[ValueT, list[str]]:
    """The names that have each value, both sorted."""
    found: dict[ValueT, list[str]] = {}
    for name, value in sorted(pairs, key=lambda pair: pair[0]):
        found.setdefault(value, []).append(name)
    return dict(sorted(found.items()))


def total_cost(costs: Iterable[float | None]) -> float | None:
    """None if one of them is not known."""
    listed = list(costs)
    known = [each for each in listed if each is not None]
    return sum(known) if len(known) == len(listed) else None
