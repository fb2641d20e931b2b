"""Label and field selectors: parsed once into predicates over the labels or fields of an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import JsonObject

Predicate = Callable[[Mapping[str, str]], bool]

LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s,=!<>()]+)
      | (?P<set_key>[^\s,=!<>()]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<key>[^\s,=!<>()]+)\s*(?:(?P<op>==|=|!=|<|>)\s*(?P<value>[^\s,=!<>()]*))?
    )\s*(?:,(?!\s*$)|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a key; operators are those of metav1.LabelSelector, and Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            difference = int(value or "") - int(self.values[0])
        except ValueError:
            return False
        return difference > 0 if self.operator == "Gt" else difference < 0


@dataclass(frozen=True, slots=True)
class Selector:
    """All of its requirements; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


def parse_labels(text: str) -> Selector:
    """A label selector in the query form: "app=web,tier in (a, b),!old". Raises StatusError (400)."""
    requirements, position = [], 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise status.bad_request(f"unable to parse requirement: found '{text[position:]}'")
        requirements.append(_checked(_requirement(match)))
        position = match.end()
    return Selector(tuple(requirements))


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], "DoesNotExist")
    if match["set_key"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(match["set_key"], "In" if match["set_op"] == "in" else "NotIn", values)
    if match["op"] is None:
        return Requirement(match["key"], "Exists")
    return Requirement(match["key"], _OPERATORS[match["op"]], (match["value"],))


def _checked(requirement: Requirement) -> Requirement:
    if not _LABEL_KEY.fullmatch(requirement.key):
        raise status.bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{requirement.key}": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        )
    for value in requirement.values if requirement.operator in ("Gt", "Lt") else ():
        if not re.fullmatch(r"[+-]?\d+", value):
            raise status.bad_request(
                f"unable to parse requirement: values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, "
                "the value must be an integer"
            )
    for value in requirement.values:
        if not _LABEL_VALUE.fullmatch(value):
            raise status.bad_request(
                f'unable to parse requirement: values[0][{requirement.key}]: Invalid value: "{value}": a valid '
                "label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
                "start and end with an alphanumeric character"
            )
    return requirement


def parse_fields(text: str) -> Selector:
    """A field selector in the query form: "metadata.name=a,status.phase!=Failed". Raises StatusError (400)."""
    requirements = []
    for term in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"((?:[^=!\\]|\\.)+)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        value = re.sub(r"\\([,=\\])", r"\1", match[3])
        requirements.append(Requirement(match[1].strip(), _OPERATORS[match[2]], (value,)))
    return Selector(tuple(requirements))


def from_object(selector: JsonObject | None) -> Selector | None:
    """A metav1.LabelSelector; None (an absent selector) selects nothing."""
    if selector is None:
        return None
    equal = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = [
        Requirement(term["key"], term["operator"], tuple(term.get("values") or ()))
        for term in selector.get("matchExpressions") or ()
    ]
    return Selector((*equal, *expressions))


def valid_label_key(key: str) -> bool:
    return bool(_LABEL_KEY.fullmatch(key)) and len(key.partition("/")[0]) <= 253


def valid_label_value(value: str) -> bool:
    return bool(_LABEL_VALUE.fullmatch(value))
