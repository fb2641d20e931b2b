"""Takes secrets out of objects and texts. In doubt a value is removed: a maintainer can ask for it."""

import re
from collections.abc import Iterator
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

REMOVED = "(removed)"
_LEFT_OUT = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_WORD = r"token|passw|secret|credential|cookie|(?:api|access|private)[-_.]?key"
_SECRET_KEY = re.compile(_WORD, re.IGNORECASE)
# Values of keys with such an end name a Secret or a file, and hold none.
_NAMES = re.compile(r"(?:names?|refs?|file|path|directory|namespace)[\"']?$", re.IGNORECASE)
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.?[\w-]*"),  # a JSON Web Token, as service accounts have
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),  # the id of an AWS access key
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user and password of a URL
    re.compile(r"(?i)(?<=bearer )\S+|(?<=basic )[A-Za-z0-9+/=]{8,}"),
)
_KEY = rf"[\"']?[\w.-]*(?:{_WORD})[\w.-]*[\"']?"
# "key: value" on a line of its own, to the line's end, and anywhere in a line, to the end of the value.
_LINE = re.compile(rf"^(\s*(?:-\s+)?)({_KEY})(\s*[:=]\s*)\S.*$", re.IGNORECASE)
_INLINE = re.compile(rf"({_KEY})(\s*[:=]\s*)(\"[^\"]*\"|'[^']*'|[^\s,&}}\]]+)", re.IGNORECASE)
_FLAG = re.compile(rf"^-+[\w.-]*(?:{_WORD})[\w.-]*$", re.IGNORECASE)


def scrubbed(value: Json, key: str = "") -> Json:
    """The value without secrets. `key` is what it stands under."""
    if isinstance(value, dict):
        return {name: scrubbed(each, name) for name, each in value.items() if name not in _LEFT_OUT}
    if isinstance(value, list):
        return list(_items(value, key))
    if isinstance(value, str):
        return REMOVED if value and _SECRET_KEY.search(key) and not _NAMES.search(key) else text_scrubbed(value)
    return value


def text_scrubbed(text: str) -> str:
    """The text without what looks like a secret, or is the value of a key that is named like one."""
    for pattern in _PATTERNS:
        text = pattern.sub(REMOVED, text)
    return "\n".join(_lines(text.split("\n")))


def _items(values: list[Json], key: str) -> Iterator[Json]:
    """A variable of an environment keeps its name; a flag's value may be the next argument."""
    before: Json = None
    for each in values:
        if key == "env" and isinstance(each, dict) and "value" in each:
            yield {**each, "value": REMOVED}
        elif isinstance(before, str) and _FLAG.match(before) and not _NAMES.search(before):
            yield REMOVED
        else:
            yield scrubbed(each, key)
        before = each


def _lines(lines: list[str]) -> Iterator[str]:
    """A value may go on below its key, further to the right."""
    within: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if within is not None and (indent > within or not line.strip()):
            continue
        within = None
        found = _LINE.match(line)
        if found is not None and not _NAMES.search(found[2]):
            within = indent
            yield f"{found[1]}{found[2]}{found[3]}{REMOVED}"
        else:
            yield _INLINE.sub(lambda part: part[0] if _NAMES.search(part[1]) else f"{part[1]}{part[2]}{REMOVED}", line)
