"""Label and field selectors, parsed once into predicates over an object's labels or fields."""

import re

from deploy.local.apiserver import status
from shared.api.selectors import LabelRequirement

LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
VALUE_RULE = "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
KEY_RULE = f"a qualified name is {VALUE_RULE}, after an optional DNS subdomain and '/'"
_COMMA = re.compile(r",(?![^()]*\))")  # but not within parentheses
_OF_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(r"([^\s=!<>()]+)\s*(==|!=|=)\s*([^\s=!<>()]*)")
_ALONE = re.compile(r"(!?)\s*([^\s=!<>()]+)")
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn"}


Requirements = tuple[LabelRequirement, ...]  # all of which have to hold


def parse_labels(text: str) -> Requirements:
    """A label selector in the query form: "app=web,tier in (a, b),!old". Raises StatusError (400)."""
    return tuple(_requirement(term.strip(), text) for term in _COMMA.split(text)) if text else ()


def _requirement(term: str, text: str) -> LabelRequirement:
    if match := _OF_SET.fullmatch(term):
        values = tuple(value.strip() for value in match[3].split(","))
        found = LabelRequirement(match[1], _OPERATORS[match[2]], values)
    elif match := _COMPARED.fullmatch(term):
        found = LabelRequirement(match[1], _OPERATORS[match[2]], (match[3],))
    elif match := _ALONE.fullmatch(term):
        found = LabelRequirement(match[2], "DoesNotExist" if match[1] else "Exists")
    else:
        raise status.bad_request(f"unable to parse requirement {term!r} of the selector {text!r}")
    if not valid_label_key(found.key):
        raise status.bad_request(f"unable to parse requirement {term!r}: {KEY_RULE}")
    if not all(valid_label_value(value) for value in found.values or ()):
        raise status.bad_request(f"unable to parse requirement {term!r}: {VALUE_RULE}")
    return found


def parse_fields(text: str) -> Requirements:
    """A field selector in the query form: "metadata.name=a,status.phase!=Failed". Raises StatusError (400)."""
    requirements = []
    for term in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"([^=!]+)(!=|==|=)((?:[^=\\]|\\.)*)", term, re.DOTALL)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        value = re.sub(r"\\([,=\\])", r"\1", match[3])
        requirements.append(LabelRequirement(match[1].strip(), _OPERATORS[match[2]], (value,)))
    return tuple(requirements)


def valid_label_key(key: str) -> bool:
    return bool(_LABEL_KEY.fullmatch(key)) and len(key.partition("/")[0]) <= 253


def valid_label_value(value: str) -> bool:
    return bool(_LABEL_VALUE.fullmatch(value))
