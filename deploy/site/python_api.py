"""The page about the Python API: the names of `headroom_api`, as the imported objects describe themselves."""

import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.site import ROOT
from headroom_api import cloudproviders, expanders, predictors

MODULES = {
    predictors: ("Predictor", "predictor/recent_maximum.py"),
    expanders: ("Expander", "expander/spot_first.py"),
    cloudproviders: ("Provider", "cloudprovider/machine_room.py"),
}  # the protocol of a plug-in, and an example of one
_LISTED_ELSEWHERE: Mapping[object, str] = {
    expanders.AutoscalerSettings: "Its fields are the [settings of the autoscaler](manager.md#autoscaler)."
}
_PACKAGES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=\w)")
_ARRAY = re.compile(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]")
_PLAIN = (type(None), bool, int, float, str)
_LINE = 100


class _Shown(str):
    """A default value by a text for readers."""

    def __repr__(self) -> str:
        return str(self)


def sections() -> Iterator[str]:
    """Markdown of each module: its example, then its names."""
    yield (
        "A plug-in imports these names only. They stay within a major version. "
        "[Extend Headroom](../how-to/extend.md) says how to declare and install a plug-in."
    )
    for module, (protocol, example) in MODULES.items():
        yield f"## `{module.__name__}`"
        yield inspect.getdoc(module) or ""
        yield f"The example `examples/{example}`, which the tests of Headroom run:"
        yield _code((ROOT / "examples" / example).read_text(encoding="utf-8"))
        for name in sorted(
            module.__all__, key=lambda name: (name != protocol, _is_constant(getattr(module, name)), name)
        ):
            yield f"### {name}"
            yield from _described(name, getattr(module, name))


def _is_constant(value: Any) -> bool:
    return not (inspect.isclass(value) or inspect.isfunction(value))


def _described(name: str, value: Any) -> Iterator[str]:
    if _is_constant(value):
        yield _code(f"{name} = {_short(value)}")
        return
    yield _code(_head(name, value))
    yield _about(value)
    yield _LISTED_ELSEWHERE.get(value, "")
    methods = [f"* {each}" for each in _methods(value)] if inspect.isclass(value) else []
    yield "\n".join(methods)


def _about(value: Any) -> str:
    """Its own docstring, neither an inherited one nor the one that a dataclass makes of its fields."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return "" if not own or own.startswith(f"{value.__name__}(") else inspect.cleandoc(own)


def _head(name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return "\n".join((f"class {name}(Enum)", *(f"    {each.name} = {each.value!r}" for each in value)))
    if value in _LISTED_ELSEWHERE or getattr(value, "_is_protocol", False):
        return f"class {name}"
    return f"{name}{_signature(value)}"


def _methods(kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        of = getattr(value, "__func__", value)
        is_method = inspect.isfunction(of) or isinstance(of, property)
        if name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ()) or not is_method:
            continue
        text = f"`{name}`" if isinstance(of, property) else f"`{name}{_signature(of, inspect.isfunction(value))}`"
        about = " ".join((inspect.getdoc(of) or "").split())
        yield f"{text}: {about}" if about else text


def _signature(of: Any, is_method: bool = False) -> str:
    """Without the instance or class that a method is called on."""
    found = inspect.signature(of)
    given = [_plain(each) for each in found.parameters.values() if each.name not in ("self", "cls")]
    short = _short(found.replace(parameters=given))
    if is_method or len(short) <= _LINE:
        return short
    keywords = next((place for place, each in enumerate(given) if each.kind is each.KEYWORD_ONLY), len(given))
    lines = [*given[:keywords], *(["*"] if keywords < len(given) else []), *given[keywords:]]
    return "\n".join(("(", *(f"    {each if each == '*' else _short(each)}," for each in lines), ")"))


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Its type without notes, and its default by name or, if that is long, by three dots."""
    kind, default = parameter.annotation, parameter.default
    if isinstance(default, enum.Enum):
        default = _Shown(f"{type(default).__name__}.{default.name}")
    elif default is not parameter.empty and not isinstance(default, _PLAIN):
        default = _Shown("...")
    return parameter.replace(annotation=kind.__origin__ if hasattr(kind, "__metadata__") else kind, default=default)


def _short(value: object) -> str:
    text = _PACKAGES.sub("", repr(value) if isinstance(value, str) else str(value)).replace("~", "")
    return _ARRAY.sub(r"NDArray[\1]", text)


def _code(text: str) -> str:
    return f"```python\n{text.strip()}\n```"
