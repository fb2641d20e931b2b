"""Settings of a process: flags, then environment, then a YAML file, into one frozen struct.

A settings class is a frozen msgspec struct whose fields have defaults. Field `report_interval_seconds` becomes the flag
`--report-interval`, the variable `HEADROOM_REPORT_INTERVAL` and the key `reportInterval` of the file; fields that end
in `_seconds` take Go durations ("30s") or plain seconds, tuples take commas, and their flags may be repeated.
`msgspec.Meta` on a field gives its help (`description`), its bounds, and in `extra` a `short` flag, or `secret`, which
hides its value wherever settings are shown. Unknown keys are errors everywhere.

A field whose type is a settings class itself is a section of the code alone: its fields stand among the others.
A field of type `Fixed[...]` is set by code alone, such as a test's or a simulation's: it has no flag, variable or key.
`REMOVED` of a class has the former settings, each with the sentence that says what replaces it: their flags, variables
and keys are refused with that. `EXAMPLES` of a class is the text of `shared.examples` that ends its help.
"""

import argparse
import difflib
import logging
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from shared import durations
from shared.errors import InvalidInput, gone

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

_FIXED = "fixed"
Fixed: TypeAlias = Annotated[T, Meta(extra={_FIXED: True})]

LogLevel: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^(debug|info|warning|error)$",
        description="Lowest level of log lines that are written: debug, info, warning or error.",
    ),
]
LogFormat: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^(auto|json|text)$",
        description="Format of log lines: json, text, or auto, which writes text to a terminal and JSON elsewhere.",
    ),
]

Kubeconfig: TypeAlias = Annotated[
    str,
    Meta(
        description="Path of the kubeconfig file. If empty, the in-cluster configuration is used, then "
        "the user's kubeconfig."
    ),
]
Authorization: TypeAlias = Annotated[
    typing.Literal["auto", "delegated", "off"],
    Meta(
        description="Who may use the HTTP endpoints. delegated: clients that the API server authenticates "
        "and authorizes; off: every client; auto: on a loopback address only clients on this "
        "machine, on other addresses as delegated."
    ),
]
CgroupRoot: TypeAlias = Annotated[str, Meta(description="Directory where cgroups are mounted.")]
CgroupParent: TypeAlias = Annotated[
    str,
    Meta(description="Path below cgroup_root that contains kubepods, for example /kubelet. If empty, it is detected."),
]

ENVIRONMENT_PREFIX = "HEADROOM_"
HELP_ALL = "--help-all"
_REDACTED = "***"


def load(
    kind: type[S],
    *,
    program: str,
    description: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
) -> S:
    """The settings of `kind` from `argv`, `environment` and the file that `--config` names, strongest first.

    Raises InvalidInput with the source of the value; argparse ends the process with status 2 for an unknown flag.
    """
    return load_with_sources(kind, program=program, description=description, argv=argv, environment=environment)[0]


def load_with_sources(
    kind: type[S],
    *,
    program: str,
    description: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
) -> tuple[S, dict[str, str]]:
    """Loads like `load`, and returns the source of each value by field, without fields at their defaults.

    Raises InvalidInput.
    """
    _refuse_removed_flags(kind, argv, environment)
    flags = vars(_parser(kind, program, description, shows_all=HELP_ALL in argv).parse_args(argv))
    file = flags.pop("config") or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    known = fields(kind)
    values = _from_file(Path(file), {key(f.name): f for f in known}, _removed_keys(kind)) if file else {}
    sources = dict.fromkeys(values, str(file))
    for field in known:
        variable = ENVIRONMENT_PREFIX + _stem(field.name).upper()
        flag = flags[field.name]
        if isinstance(flag, list):  # repeated flags are the whole value
            flag = ",".join(flag)
        text, source = (flag, _flag(field.name)) if flag is not None else (environment.get(variable), variable)
        if text is not None:
            values[field.name] = _value(field, text, source)
            sources[field.name] = source
    return _build(kind, values, sources), sources


def shown(settings: msgspec.Struct) -> dict[str, object]:
    """The effective settings by file key, secrets redacted."""
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if _section(field):
            found |= shown(value)
        elif not _is_fixed(field):
            found[key(field.name)] = _REDACTED if _is_secret(field) and value else value
    return found


def fields(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """The fields of a settings class that can be set from outside, those of its sections among them."""
    return [field for field in _all_fields(kind) if not _is_fixed(field)]


def removed(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The former fields of a settings class, those of its sections among them, and what replaces each."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        found |= vars(base).get("REMOVED", {})
    for field in msgspec.structs.fields(kind):
        if section := _section(field):
            found |= removed(section)
    return found


def combine(kind: type[S], values: Mapping[str, object]) -> S:
    """The settings with these values by field, those of its sections among them. Raises msgspec.ValidationError."""
    rest = dict(values)
    parts: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if section := _section(field):
            names = [each.name for each in _all_fields(section) if each.name in rest]
            parts[field.name] = combine(section, {name: rest.pop(name) for name in names})
    return msgspec.convert(rest | parts, kind, strict=True)


def schemas(kind: type[msgspec.Struct]) -> dict[str, dict[str, typing.Any]]:
    """The JSON schema of each of the `fields`, by name."""
    own = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    found: dict[str, dict[str, typing.Any]] = {}
    for field in msgspec.structs.fields(kind):
        section = _section(field)
        if not _is_fixed(field):
            found |= schemas(section) if section else {field.name: own[field.encode_name]}
    return found


def _all_fields(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    found: list[msgspec.structs.FieldInfo] = []
    for field in msgspec.structs.fields(kind):
        section = _section(field)
        found += _all_fields(section) if section else [field]
    return found


def _section(field: msgspec.structs.FieldInfo) -> type[msgspec.Struct] | None:
    return field.type if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) else None


def _build(kind: type[S], values: dict[str, object], sources: Mapping[str, str]) -> S:
    try:
        return combine(kind, values)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").split("[")[0]
        raise InvalidInput(
            source=sources.get(name, kind.__name__),
            field=key(name),
            value=values.get(name),
            problem=problem,
        ) from error


def _removed_keys(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {key(name): replacement for name, replacement in removed(kind).items()}


def _refuse_removed_flags(kind: type[msgspec.Struct], argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raises InvalidInput for a flag or a variable of a removed setting."""
    given = {argument.partition("=")[0]: argument.partition("=")[2] for argument in argv}
    for name, replacement in removed(kind).items():
        variable = ENVIRONMENT_PREFIX + _stem(name).upper()
        for source, values in ((_flag(name), given), (variable, environment)):
            if source in values:
                raise InvalidInput(source=source, field=key(name), value=values[source], problem=gone(replacement))


def _from_file(
    file: Path, fields: Mapping[str, msgspec.structs.FieldInfo], removed_keys: Mapping[str, str]
) -> dict[str, object]:
    from shared import yaml_file  # imported here, because most processes have no file

    document = yaml_file.read(file, "--config") or {}
    if not isinstance(document, dict):
        raise InvalidInput(
            source=str(file),
            field="(document)",
            value=document,
            problem="expected a mapping",
        )
    values: dict[str, object] = {}
    for key, value in document.items():
        if key in removed_keys:
            raise InvalidInput(source=str(file), field=key, value=value, problem=gone(removed_keys[key]))
        if key not in fields:
            raise InvalidInput(
                source=str(file),
                field=str(key),
                value=value,
                problem=f"unknown key (known: {', '.join(sorted(fields))})",
            )
        is_duration = isinstance(value, str) and fields[key].name.endswith("_seconds")
        values[fields[key].name] = _value(fields[key], value, str(file)) if is_duration else value
    return values


def _value(field: msgspec.structs.FieldInfo, text: str, source: str) -> object:
    """`text` from a flag or a variable as the field's own type; the struct checks the bounds later."""
    try:
        if field.name.endswith("_seconds") and not _is_number(text):
            return msgspec.convert(durations.parse(text), _plain(field.type), strict=False)
        return msgspec.convert(_split(field, text), _plain(field.type), strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidInput(source=source, field=key(field.name), value=text, problem=str(error)) from error


def _split(field: msgspec.structs.FieldInfo, text: str) -> object:
    """A comma-separated list where the field is a tuple; an empty text is an absent value where None is allowed."""
    plain = _plain(field.type)
    if typing.get_origin(plain) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return None if text == "" and type(None) in typing.get_args(plain) else text


def _plain(annotation: object) -> typing.Any:
    """The type inside Annotated[...]; msgspec judges it."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Parser(argparse.ArgumentParser):
    """Ends help with examples. Reports an error in one line; the usage with all flags would bury it."""

    examples = ""

    def format_help(self) -> str:
        return f"{super().format_help()}\n{self.examples}\n" if self.examples else super().format_help()

    def error(self, message: str) -> typing.NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0].partition("=")[0]
        close = difflib.get_close_matches(unknown, self._option_string_actions, n=1)
        meant = f", did you mean {close[0]}?" if close and unknown.startswith("--") else ""
        self.exit(2, f"{self.prog}: {message}{meant} (see {self.prog} --help)\n")


def _parser(
    kind: type[msgspec.Struct], program: str, description: str, *, shows_all: bool = True
) -> argparse.ArgumentParser:
    """Without `shows_all`, help leaves out the settings that are not the command's `_own`."""
    own = _own(kind)
    more = len(fields(kind)) - len(own)
    parser = _Parser(prog=program, description=description, usage=f"{program} [options]")
    parser.examples = getattr(kind, "EXAMPLES", "")
    if more:
        parser.add_argument(HELP_ALL, action="help", help=f"show {more} more options, too")
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings (keys in camelCase)")
    for field in sorted(fields(kind), key=lambda each: each.name not in own):
        meta = _meta(field)
        options: dict[str, typing.Any] = {"help": f"{meta.description or ''}{_default(field)}".replace("%", "%%")}
        if field.name not in own and not shows_all:
            options["help"] = argparse.SUPPRESS
        short = (meta.extra or {}).get("short")
        if _plain(field.type) is bool:
            options |= {"nargs": "?", "const": "true", "metavar": "true|false"}
        elif typing.get_origin(_plain(field.type)) is tuple:
            options |= {"action": "append", "metavar": "VALUE"}
        else:
            options["metavar"] = "DURATION" if field.name.endswith("_seconds") else "VALUE"
        parser.add_argument(*([short] if short else []), _flag(field.name), dest=field.name, default=None, **options)
    return parser


def _own(kind: type[msgspec.Struct]) -> set[str]:
    """Names of the settings that a process does not inherit: those of its last section, where it has only sections."""
    own = kind.__annotations__.keys() & {field.name for field in fields(kind)}
    sections = [section for field in msgspec.structs.fields(kind) if (section := _section(field))]
    return own or {field.name for section in sections[-1:] for field in fields(section)}


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default in (None, "", msgspec.NODEFAULT, ()):
        return ""
    return f" (default {durations.render(field.default) if field.name.endswith('_seconds') else field.default})"


def _meta(field: msgspec.structs.FieldInfo) -> msgspec.Meta:
    metas = [m for m in typing.get_args(field.type)[1:] if isinstance(m, msgspec.Meta)]
    return metas[0] if metas else msgspec.Meta()


def _is_fixed(field: msgspec.structs.FieldInfo) -> bool:
    return bool((_meta(field).extra or {}).get(_FIXED))


def _is_secret(field: msgspec.structs.FieldInfo) -> bool:
    return bool((_meta(field).extra or {}).get("secret"))


def _stem(name: str) -> str:
    return name.removesuffix("_seconds")


def _flag(name: str) -> str:
    return "--" + _stem(name).replace("_", "-")


def key(name: str) -> str:
    """A field's name as files and errors spell it."""
    head, *rest = _stem(name).split("_")
    return head + "".join(part.capitalize() for part in rest)
