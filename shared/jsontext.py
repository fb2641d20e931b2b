"""JSON written by people, read strictly: a duplicate key is an error."""

import json

import msgspec

from shared.errors import InvalidInput

MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_object(text: str, *, source: str) -> dict[str, object]:
    """The JSON object in `text`. Raises InvalidInput, also for duplicate keys: readers differ on which one counts."""
    try:
        document = msgspec.json.decode(text)
        repeated = _repeated_key(text)
    except MALFORMED as error:
        raise InvalidInput(source=source, field="(document)", value=text, problem=str(error)) from error
    if not isinstance(document, dict):
        raise InvalidInput(source=source, field="(document)", value=document, problem="expected a JSON object")
    if repeated is not None:
        key, values = repeated
        raise InvalidInput(source=source, field=key, value=values, problem="the key stands twice in one object")
    return document


def _repeated_key(text: str) -> tuple[str, list[object]] | None:
    """The first duplicate key, with all its values in that object."""
    found: list[tuple[str, list[object]]] = []

    def checked(pairs: list[tuple[str, object]]) -> dict[str, object]:
        values = dict(pairs)
        if len(values) < len(pairs) and not found:
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            found.append((twice, [value for key, value in pairs if key == twice]))
        return values

    json.loads(text, object_pairs_hook=checked, parse_int=str, parse_float=str)
    return found[0] if found else None
