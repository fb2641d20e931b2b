"""Label and field selectors: parsed once into predicates over the labels or fields of an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import JsonObject

Predicate = Callable[[Mapping[str, str]], bool]

LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_TOKEN = re.compile(r"\s*(==|!=|[=,()!<>]|[^\s=,()!<>]+|$)")
_SYMBOLS = frozenset({"==", "!=", "=", ",", "(", ")", "!", "<", ">", ""})
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_TOO_MANY_PARTS = (
    f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
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


_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt", "in": "In", "notin": "NotIn"}


class _SyntaxError(Exception):
    """Why a text is no requirement."""


class _Parser:
    """A label selector, token by token."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]

    def peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def take(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def requirements(self) -> Iterator[Requirement]:
        """Raises StatusError (400)."""
        while self.peek():
            if self.peek() in _SYMBOLS - {"!"}:
                raise status.bad_request(f"found '{self.peek()}', expected: !, identifier, or 'end of string'")
            try:
                yield self._requirement()
            except _SyntaxError as error:
                raise status.bad_request(f"unable to parse requirement: {error}") from None
            following = self.take()
            if following not in ("", ","):
                raise status.bad_request(f"found '{following}', expected: ',' or 'end of string'")
            if following and self.peek() in _SYMBOLS - {"!"}:
                raise status.bad_request(f"found '{self.peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        absent = self.peek() == "!"
        if absent:
            self.take()
        key = self._identifier()
        if problems := key_problems(key):
            raise _SyntaxError(f'<nil>: Invalid value: "{key}": {problems[0]}')
        if absent:
            return Requirement(key, "DoesNotExist")
        if self.peek() in ("", ","):
            return Requirement(key, "Exists")
        sign = self.take()
        if sign not in _OPERATORS:
            raise _SyntaxError(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if sign in ("in", "notin") else (self._exact_value(),)
        return _checked(Requirement(key, _OPERATORS[sign], values))

    def _identifier(self) -> str:
        found = self.take()
        if found in _SYMBOLS:
            raise _SyntaxError(f"found '{found}', expected: identifier")
        return found

    def _exact_value(self) -> str:
        return "" if self.peek() in ("", ",") else self._identifier()

    def _values(self) -> tuple[str, ...]:
        if (found := self.take()) != "(":
            raise _SyntaxError(f"found '{found}' expected: '('")
        values = [self._listed()]
        while (found := self.take()) == ",":
            values.append(self._listed())
        if found != ")":
            raise _SyntaxError(f"found '{found}', expected: ',' or ')'")
        return tuple(values)

    def _listed(self) -> str:
        """A value of a list; between commas there may be none."""
        return "" if self.peek() in (",", ")") else self._identifier()


def parse_labels(text: str) -> Selector:
    """A label selector in the query form: "app=web,tier in (a, b),!old". Raises StatusError (400)."""
    return Selector(tuple(_Parser(text).requirements())) if text else Selector()


def _checked(requirement: Requirement) -> Requirement:
    for value in requirement.values if requirement.operator in ("Gt", "Lt") else ():
        if not re.fullmatch(r"[+-]?\d+", value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _SyntaxError(f'values[0]: Invalid value: "{value}": {detail}')
    for index, value in enumerate(requirement.values):
        if problem := value_problem(value):
            raise _SyntaxError(f'values[{index}][{requirement.key}]: Invalid value: "{value}": {problem}')
    return requirement


def key_problems(key: str) -> list[str]:
    """Why a text is no qualified name: `name` or `prefix/name`."""
    if valid_label_key(key):
        return []
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [_TOO_MANY_PARTS]
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and not SUBDOMAIN.fullmatch(prefix):
        problems.append(f"prefix part {_SUBDOMAIN_RULE}")
    elif len(prefix) > 253:
        problems.append("prefix part must be no more than 253 bytes")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _NAME_PART.fullmatch(name):
        problems.append(f"name part {_NAME_RULE}")
    return problems


def value_problem(value: str) -> str:
    """Why a text is no value of a label, or nothing."""
    if valid_label_value(value):
        return ""
    return "must be no more than 63 bytes" if len(value) > 63 else _VALUE_RULE


def parse_fields(text: str) -> Selector:
    """A field selector in the query form: "metadata.name=a,status.phase!=Failed". Raises StatusError (400)."""
    requirements = []
    for term in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"((?:[^=!\\]|\\.)*)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if unescaped := re.search(r"(?<!\\)(?:\\\\)*=", match[3]):
            raise status.bad_request(f"invalid field selector: unescaped character in value: {ord(unescaped[0][-1])}")
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


def object_text(selector: JsonObject) -> str:
    """A metav1.LabelSelector in the query form, its requirements in the order of their keys."""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append((key, texts.get(term["operator"], f"!{key}")))
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def valid_label_key(key: str) -> bool:
    return bool(_LABEL_KEY.fullmatch(key)) and len(key.partition("/")[0]) <= 253


def valid_label_value(value: str) -> bool:
    return bool(_LABEL_VALUE.fullmatch(value))
