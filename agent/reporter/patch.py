"""A status as a JSON merge patch that leaves nothing of an older report behind."""

import msgspec

from shared.api.nodemetric import NodeMetricReport


def body(status: NodeMetricReport) -> dict[str, object]:
    """The patch of the whole object. A field without a value is null, which removes it; lists are replaced whole."""
    return {"status": _explicit(status)}


def _explicit(value: object) -> object:
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return {wire: _explicit(getattr(value, field)) for field, wire in names}
