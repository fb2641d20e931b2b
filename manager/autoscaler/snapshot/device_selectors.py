"""CEL selectors of devices, as kube-scheduler evaluates them (dynamic-resource-allocation, cel/compile.go).

Quantities and versions are texts here, which `compareTo` and its like read.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from shared import quantity
from shared.api.dra import Device
from shared.quantity import QuantityError

# What a selector reads of a device by name. A call behind it, as `.exists(...)`, is none.
_READ = re.compile(
    r"""\bdevice\.(?:driver|allowMultipleAllocations|(?:attributes|capacity)\[(?:"([^"\\]*)"|'([^'\\]*)')\]\.(\w+))\b(?!\s*\()"""
)
_DEVICE = re.compile(r"\bdevice\b")
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_MOST_EXPRESSIONS = 512  # that are kept compiled
_TEXTS = re.compile(r"\"([^\"\\]*)\"|'([^'\\]*)'")
_VERSION = re.compile(r"^(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+.*)?$")


class SelectorProblem(Exception):
    """A selector cannot be judged about a device; why, in words."""


def selects(expressions: Sequence[str], driver: str, device: Device) -> bool:
    """Whether all of these select the device. Raises SelectorProblem."""
    return all(_evaluate(expression, driver, device) for expression in expressions)


def names_read(expressions: Sequence[str]) -> frozenset[tuple[str, str]] | None:
    """The domains and names of all attributes and capacities that these can read; None if they may read any.

    Whatever else mentions the device, as a comparison of whole maps, a macro, a test with `in`, may read any.
    """
    if any(_DEVICE.search(_READ.sub("", each)) for each in expressions):
        return None
    found = (read for each in expressions for read in _READ.finditer(each))
    return frozenset((read[1] or read[2] or "", read[3]) for read in found if read[3])


def kinds(expressions: Sequence[str]) -> Callable[[str, Device], bytes]:
    """Returns what is equal for devices, each with its driver, that these expressions cannot tell apart. Without it, a
    serial number would have each of them judged by itself.
    """
    names = names_read(expressions)

    def read(named: Mapping[str, object] | None, driver: str) -> Mapping[str, object]:
        if names is None or not named:
            return named or {}
        return {name: value for name, value in named.items() if _qualified(name, driver) in names}

    def kind_of(driver: str, device: Device) -> bytes:
        parts = read(device.attributes, driver), read(device.capacity, driver)
        return _ENCODER.encode((driver, device.allow_multiple_allocations, *parts))

    return kind_of


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """The domain and the name of an attribute: without a domain it is of the driver's."""
    domain, _, identifier = name.rpartition("/")
    return domain or driver, identifier


def _evaluate(expression: str, driver: str, device: Device) -> bool:
    program, domains = _compiled(expression)
    attributes = _by_domain(driver, {name: each.value for name, each in (device.attributes or {}).items()}, domains)
    capacity = _by_domain(driver, {name: str(each.value) for name, each in (device.capacity or {}).items()}, domains)
    variables = {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": attributes,
        "capacity": capacity,
    }
    from cel import Context
    from cel.stdlib import add_stdlib_to_context

    context = Context(variables={"device": variables})
    add_stdlib_to_context(context)
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    try:
        found = program.execute(context)
    except KeyError as missing:
        raise SelectorProblem(f"selector {expression!r}: no such key: {missing.args[0]}") from missing
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the engine is no Exception
        raise SelectorProblem(f"selector {expression!r}: {str(error).splitlines()[0]}") from error
    if not isinstance(found, bool):
        raise SelectorProblem(f"selector {expression!r} is {found!r}, which is neither true nor false")
    return found


@lru_cache(_MOST_EXPRESSIONS)
def _compiled(expression: str) -> tuple[Any, frozenset[str]]:
    """The program, and the texts in it, among which are all drivers that it names.

    Raises SelectorProblem.
    """
    try:
        import cel  # here, as it loads a command line, too
    except ImportError as missing:
        problem = f"selector {expression!r} is not judged without the extra `dra` (common-expression-language)"
        raise SelectorProblem(problem) from missing
    try:
        program = cel.compile(expression)
    except ValueError as error:
        raise SelectorProblem(f"selector {expression!r}: {str(error).splitlines()[0]}") from error
    texts = frozenset(found[1] or found[2] or "" for found in _TEXTS.finditer(expression))
    return program, texts


def _by_domain(driver: str, named: Mapping[str, Any], domains: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Values by domain and name; a name without a domain is of the driver's, and an unknown domain has none."""
    found: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        found.setdefault(domain if slash else driver, {})[identifier if slash else name] = value
    return found


def _compare(one: str, other: str) -> int:
    versions = _VERSION.match(one), _VERSION.match(other)
    if versions[0] and versions[1]:
        left, right = _precedence(versions[0]), _precedence(versions[1])
        return (left > right) - (left < right)
    try:
        amounts = quantity.milli(one), quantity.milli(other)
    except QuantityError as error:
        raise ValueError(str(error)) from error
    return (amounts[0] > amounts[1]) - (amounts[0] < amounts[1])


def _precedence(version: re.Match[str]) -> tuple[Any, ...]:
    """By semver.org, 11: a pre-release is before its release, and its numbers are before its words."""
    before = version[4]
    parts = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in (before or "").split("."))
    return (*(int(version[number]) for number in (1, 2, 3)), before is None, parts if before else ())


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": lambda text: text,
    "semver": lambda text: text,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "includes": lambda values, value: value in values if isinstance(values, list) else values == value,
}
