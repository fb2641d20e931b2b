"""Every metric of agent and manager, from the calls that make them.

A call of prometheus_client's classes makes a metric. Where its name depends on a parameter, the function around it (or
its class) makes metrics as well, by its own calls; so the search goes on until no new function turns up.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from deploy.site import source
from deploy.site.source import Module

# Class -> type, and the position of its labels.
_CLASSES = {
    "Counter": ("counter", 2),
    "Gauge": ("gauge", 2),
    "Histogram": ("histogram", 2),
    "CounterMetricFamily": ("counter", 3),
    "GaugeMetricFamily": ("gauge", 3),
    "InfoMetricFamily": ("info", 3),
    "UntypedMetricFamily": ("untyped", 3),
}
_LIBRARY = "prometheus_client"
_ENDS = {"counter": "_total", "info": "_info"}
# A call, with its module and the definitions around it, outermost first.
_Call: TypeAlias = tuple[Module, tuple[ast.AST, ...], ast.Call]
_OPEN, _CLOSE = "\0", "\1"  # around a parameter that is not known yet


@dataclass(frozen=True, order=True)
class Family:
    """One metric, as it is scraped."""

    name: str
    type: str
    about: str
    labels: tuple[str, ...]
    module: str

    @property
    def is_known(self) -> bool:
        return _OPEN not in self.name


@dataclass(frozen=True)
class _Maker:
    """A function, or a class by its `__init__`, whose calls make `family`."""

    module: Module
    name: str
    function: ast.FunctionDef
    family: Family
    around: ast.AST | None = None  # the function that it is defined in, outside of which nothing can call it


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """All metrics whose names follow from the source, by name."""
    found: set[Family] = set()
    makers: list[_Maker] = []
    fresh: list[_Maker | None] = [None]
    while fresh:
        maker = fresh.pop()
        for module, owners, call in _calls(maker):
            family = _made(module, owners, call, maker)
            if family is None:
                continue
            if family.is_known:
                found.add(_finished(family))
                continue
            above = _owner(module, owners, family)
            if above is not None and above not in makers:
                makers.append(above)
                fresh.append(above)
    return tuple(sorted({family.name: family for family in sorted(found, reverse=True)}.values()))


def _calls(maker: _Maker | None) -> Iterator[_Call]:
    """Calls of `maker`, or of the library's classes."""
    if maker is None:
        for name in _CLASSES:
            for each in _all_calls().get(name, ()):
                if each[0].imported.get(name, ("", ""))[0].startswith(_LIBRARY):
                    yield each
        return
    for module, owners, call in _all_calls().get(maker.name, ()):
        if source.resolved(module, call.func) == (maker.module, maker.name) and (
            maker.around is None or maker.around in owners
        ):
            yield module, owners, call


@lru_cache(maxsize=1)
def _all_calls() -> dict[str, list[_Call]]:
    """All calls, by the last name of what is called."""
    found: dict[str, list[_Call]] = {}
    for module in _concerned():
        for owners, call in _walk(module.tree, ()):
            found.setdefault(source.short(call.func), []).append((module, owners, call))
    return found


def _concerned() -> Iterator[Module]:
    """Modules that know the library, or a module that does."""
    known = source.modules()
    first = {
        name for name, module in known.items() if any(home.startswith(_LIBRARY) for home, _ in module.imported.values())
    }
    for name, module in known.items():
        homes = {part for home, each in module.imported.values() for part in (home, f"{home}.{each}")}
        if name in first or homes & first:
            yield module


def _walk(node: ast.AST, owners: tuple[ast.AST, ...]) -> Iterator[tuple[tuple[ast.AST, ...], ast.Call]]:
    if isinstance(node, ast.Call):
        yield owners, node
    inside = (*owners, node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else owners
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, inside)


def _made(module: Module, owners: Iterable[ast.AST], call: ast.Call, maker: _Maker | None) -> Family | None:
    """The metric that `call` makes, with marks where it depends on parameters of the functions around it."""
    known = _known(module, owners)
    if maker is None:
        if not call.args or not isinstance(call.func, ast.Name):
            return None
        type_, place = _CLASSES[call.func.id]
        name, about = (source.text(module, each, known) for each in (*call.args, ast.Constant(""))[:2])
        given = {each.arg: each.value for each in call.keywords}
        labels = (
            given.get("labels") or given.get("labelnames") or (call.args[place] if len(call.args) > place else None)
        )
        return Family(name, type_, about, tuple(_labels(module, labels, known, owners)), module.name)
    values = _bound(module, maker, call, known, owners)
    family = maker.family
    for mark, parts in values.items():
        family = replace(
            family,
            name=family.name.replace(mark, parts[0] if parts else ""),
            about=family.about.replace(mark, parts[0] if parts else ""),
            labels=tuple(each for label in family.labels for each in (parts if label == mark else (label,))),
        )
    return replace(family, module=module.name)


def _bound(
    module: Module, maker: _Maker, call: ast.Call, known: Mapping[str, str], owners: Iterable[ast.AST]
) -> dict[str, tuple[str, ...]]:
    """The values that a call gives for the marks of its maker."""
    names = [each.arg for each in maker.function.args.args if each.arg != "self"]
    keywords = {each.arg: each.value for each in call.keywords if each.arg}
    values: dict[str, tuple[str, ...]] = {}
    defaults = maker.function.args.defaults
    for place, name in enumerate(names):
        given = call.args[place] if place < len(call.args) else keywords.get(name)
        if given is None and len(names) - place <= len(defaults):
            given = defaults[len(defaults) - len(names) + place]
        if given is None:
            continue
        listed = isinstance(given, ast.List | ast.Tuple)
        values[_mark(maker.function, name)] = (
            tuple(_labels(module, given, known, owners)) if listed else (source.text(module, given, known),)
        )
    if maker.function.args.vararg:
        rest = ast.Tuple(elts=call.args[len(names) :], ctx=ast.Load())
        values[_mark(maker.function, maker.function.args.vararg.arg)] = tuple(_labels(module, rest, known, owners))
    return values


def _known(module: Module, owners: Iterable[ast.AST]) -> dict[str, str]:
    """Marks for parameters around a call, and what local names stand for that are assigned once."""
    known: dict[str, str] = {}
    for owner in owners:
        if not isinstance(owner, ast.FunctionDef):
            continue
        parameters = [*owner.args.args, *owner.args.kwonlyargs, *filter(None, [owner.args.vararg])]
        known |= {each.arg: _mark(owner, each.arg) for each in parameters}
        for node in owner.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.JoinedStr | ast.Constant):
                known[ast.unparse(node.targets[0])] = source.text(module, node.value, known)
    return known


def _mark(function: ast.FunctionDef, parameter: str) -> str:
    return f"{_OPEN}{id(function)}:{parameter}{_CLOSE}"


def _labels(
    module: Module, expression: ast.expr | None, known: Mapping[str, str], owners: Iterable[ast.AST]
) -> Iterator[str]:
    if isinstance(expression, ast.List | ast.Tuple):
        for each in expression.elts:
            yield from _labels(module, each.value if isinstance(each, ast.Starred) else each, known, owners)
    elif isinstance(expression, ast.Constant):
        yield from [expression.value] if isinstance(expression.value, str) else []
    elif isinstance(expression, ast.Name):
        assigned = [
            node.value
            for owner in owners
            for node in getattr(owner, "body", ())
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == expression.id
        ]
        if assigned:
            yield from _labels(module, assigned[-1], known, owners)
        elif expression.id in known:
            yield known[expression.id]
        elif (there := source.resolved(module, expression)) and there[1] in there[0].constants:
            yield from _labels(there[0], there[0].constants[there[1]], {}, ())


def _owner(module: Module, owners: tuple[ast.AST, ...], family: Family) -> _Maker | None:
    """The innermost definition around whose parameter the name depends on."""
    for place in range(len(owners) - 1, -1, -1):
        owner = owners[place]
        if isinstance(owner, ast.FunctionDef) and f"{_OPEN}{id(owner)}:" in family.name:
            above = owners[place - 1] if place else None
            is_class = owner.name == "__init__" and isinstance(above, ast.ClassDef)
            name = above.name if is_class and isinstance(above, ast.ClassDef) else owner.name
            return _Maker(module, name, owner, family, above if isinstance(above, ast.FunctionDef) else None)
    return None


def _finished(family: Family) -> Family:
    end = _ENDS.get(family.type, "")
    labels = tuple(label for label in family.labels if _OPEN not in label)
    about = "" if _OPEN in family.about else family.about
    return replace(family, name=family.name.removesuffix(end) + end, labels=labels, about=about)
