"""The errors that cross modules."""

import re
from collections.abc import Iterator, Mapping

MAX_SHOWN_VALUE = 120  # a quoted value has to be recognisable, not complete


class HeadroomError(Exception):
    """Root of the errors this product raises on purpose; its text is fit to show to a user."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(plain(each) if isinstance(each, str) else each for each in arguments))


class InvalidInput(HeadroomError, ValueError):
    """Input refused where it enters.

    `source` is the user's input (a flag, a file, a ConfigMap), `field` the path inside it, `value` the value there,
    `problem` the reason.
    """

    def __init__(self, *, source: str, field: str, value: object, problem: str) -> None:
        self.source = source
        self.field = field
        self.value = value
        self.problem = plain(problem)
        super().__init__(f"{source}: {field}: {shown(value)}: {problem}")


# What Python and its libraries write for programmers, and what to say in its place.
_OF_SYSTEM = re.compile(r"\[Errno -?\d+\] ([^:'\n]+)(?:: '[^'\n]*'(?: -> '[^'\n]*')?)?")
_OF_POOL = re.compile(
    r"<?(?:urllib3\.connection\.)?HTTPS?Connection(?:Pool)?\(host='([^'\n]*)', port=(\d+)\)"
    r"(?: object[^>\n]*>)?: Failed to establish a new connection: "
)
_ONE_OF = re.compile(r"Expected `str` matching regex '\^\(([\w|. -]+)\)\$'")
_PATTERN = re.compile(r"Expected `str` matching regex ('[^\n]*?')(?= - at|$)")


def plain(text: str) -> str:
    """The text in a user's words: without errors' numbers, Python's names of types, and paths said a second time."""
    text = _OF_POOL.sub(lambda found: f"no connection to {found[1]}:{found[2]}: ", text)
    text = _OF_SYSTEM.sub(lambda found: found[1][0].lower() + found[1][1:], text)
    text = _ONE_OF.sub(lambda found: f"expected one of {', '.join(found[1].split('|'))}", text)
    return _PATTERN.sub(r"expected a text of the form \1", text)


def shown(value: object) -> str:
    """`value` as an error message quotes it: one line, of bounded length, and made in bounded time."""
    text = ""
    for part in _parts(value):
        text += part
        if len(text) > MAX_SHOWN_VALUE:
            break
    return cut(text, MAX_SHOWN_VALUE)


def cut(text: str, most: int) -> str:
    """`text`, or its first `most` characters and an ellipsis."""
    return text if len(text) <= most else text[:most] + "..."


def _parts(value: object) -> Iterator[str]:
    """The repr of `value` from left to right, so that a reader can stop before a large value is written out."""
    if isinstance(value, str | bytes):
        yield repr(value[: MAX_SHOWN_VALUE + 1])
    elif isinstance(value, int) and value.bit_length() > 4 * MAX_SHOWN_VALUE:  # Python refuses to print long integers
        yield f"an integer of {value.bit_length()} bits"
    elif isinstance(value, Mapping):
        yield "{"
        for number, (key, each) in enumerate(value.items()):
            yield ", " if number else ""
            yield from _parts(key)
            yield ": "
            yield from _parts(each)
        yield "}"
    elif isinstance(value, list | tuple):
        opening, closing = "[]" if isinstance(value, list) else "()"
        yield opening
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _parts(each)
        yield f",{closing}" if opening == "(" and len(value) == 1 else closing
    else:
        yield repr(value)


def gone(replacement: str) -> str:
    """The problem of a setting that no longer exists, with the sentence that says what replaces it."""
    return f"this setting was removed. {replacement}"
