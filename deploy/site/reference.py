"""The pages of `docs/reference` that the code writes, by path in the site."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

import agent
import manager
import shared
from agent.enforcer.settings import EnforcerSettings
from agent.http import api
from agent.settings import AgentSettings
from deploy.plan import PlanSettings
from deploy.site import ROOT, commands, metrics, python_api
from manager import http
from manager.autoscaler.http import router
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.nodeside import workloads
from manager.nodeside.scheduling import explained, extender
from manager.settings import ManagerSettings
from shared import durations, settings, yaml_file
from shared.api.colocation import BOUNDS, WIRE_NAMES, ColocationStrategy
from shared.api.thresholds import ThresholdStrategy
from shared.kube.events import EventReason

_CRDS = ROOT / "deploy" / "helm" / "headroom" / "files" / "crds"
_NOTE = "*`make docs` writes this page from the code.*"
_STRONGEST = (
    "Each is a flag, a variable `HEADROOM_...` and a key of the `--config` file, strongest first. "
    "The chart takes the same keys under `{}.settings`."
)
_KEY = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]+/[A-Za-z0-9._-]*[A-Za-z0-9]")
# Keys of other projects that are only read as Kubernetes itself defines them.
_KUBERNETES = re.compile(r"(?!cluster-autoscaler\.)(?:[a-z0-9.-]*\.)?(?:kubernetes|k8s)\.io/")


def pages() -> dict[str, str]:
    """Markdown by path."""
    return {
        "reference/agent.md": _page(
            "Settings of the agent",
            _STRONGEST.format("agent"),
            _settings(AgentSettings),
        ),
        "reference/enforcer.md": _page(
            "Settings of the enforcer",
            "The chart takes the keys under `enforcer.settings`.",
            _settings(EnforcerSettings),
        ),
        "reference/manager.md": _page(
            "Settings of the manager",
            _STRONGEST.format("manager"),
            _settings(ManagerSettings),
            "## Autoscaler",
            _settings(AutoscalerSettings),
            "## Of `headroom plan` alone",
            _settings(PlanSettings, without=AutoscalerSettings),
        ),
        "reference/policy.md": _page(
            "The policy",
            "ConfigMap `slo-controller-config` in the manager's namespace. Unknown keys are errors.",
            "## Key `colocation-config`",
            _struct(ColocationStrategy, BOUNDS),
            "## Key `resource-threshold-config`",
            "Fields of `clusterStrategy` and of each of `nodeStrategies`.",
            _struct(ThresholdStrategy, {}),
        ),
        "reference/metrics.md": _page("Metrics", *_metrics()),
        "reference/events.md": _page(
            "Events",
            "`{...}` stands for what only the running program knows. [Operations](../operations.md) says what to do.",
            _table(("reason", "type", "message"), _events()),
        ),
        "reference/names.md": _page("Annotations, labels, taints and resources", *_names()),
        "reference/crds.md": _page("Custom resources", *_crds()),
        "reference/http.md": _page("HTTP paths", *_paths()),
        "reference/commands.md": _page("Commands", *commands.sections()),
        "reference/python-api.md": _page("Python API for plug-ins", *python_api.sections()),
    }


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", _NOTE, *parts)) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _settings(kind: type[msgspec.Struct], without: type[msgspec.Struct] | None = None) -> str:
    left_out = {field.name for field in settings.fields(without)} if without else set()
    keys = dict(zip((field.name for field in settings.fields(kind)), settings.shown(kind()), strict=True))
    schema = settings.schemas(kind)
    rows = []
    for field in settings.fields(kind):
        if field.name in left_out:
            continue
        stem = field.name.removesuffix("_seconds")
        is_duration = field.name.endswith("_seconds") and isinstance(field.default, int | float)
        default = durations.render(field.default) if is_duration else _default(field.default)
        about = schema[field.name].get("description", "")
        rows.append((_code(f"--{stem.replace('_', '-')}"), _code(keys[field.name]), _code(default), about))
    return _table(("flag", "key", "default", "meaning"), rows)


def _default(value: object) -> str:
    if isinstance(value, bool | msgspec.Struct):
        return msgspec.json.encode(value).decode()
    return "" if value in (None, (), msgspec.NODEFAULT) else str(value)


def _struct(kind: type[msgspec.Struct], bounds: Mapping[str, Any]) -> str:
    rows = []
    for field in msgspec.structs.fields(kind):
        bound = bounds.get(field.name)
        least = f"{'more than' if bound.open else 'from'} {bound.low}" if bound else ""
        most = f" to {bound.high}" if bound and bound.high is not None else ""
        name = WIRE_NAMES.get(field.name, field.encode_name) if bounds else field.encode_name
        rows.append((_code(name), _code(_default(field.default)), least + most))
    return _table(("field", "default", "range"), rows)


def _metrics() -> Iterator[str]:
    yield "Counters end with `_total`."
    found = list(metrics.families())
    for title, prefixes in (
        ("Agent", ("headroom_agent_",)),
        ("Manager", ("headroom_manager_",)),
        ("Autoscaler", ("headroom_autoscaler_",)),
        ("Both", ("headroom_",)),
    ):
        mine = [each for each in found if each.name.startswith(prefixes)]
        found = [each for each in found if each not in mine]
        rows = [(_code(each.exposed_name), each.type, _code(", ".join(each.labels)), each.about) for each in mine]
        yield f"## {title}"
        yield _table(("name", "type", "labels", "meaning"), rows)


def _events() -> list[tuple[str, str, str]]:
    declared = {(each, each.type, each.message) for each in EventReason.DECLARED}
    return [(_code(reason), type_, message) for reason, type_, message in sorted(declared)]


def _names() -> Iterator[str]:
    yield "Keys that the product reads or writes, beyond those that Kubernetes defines for every cluster."
    found: dict[str, tuple[str, str]] = {}
    constants = [each for module in _modules() for each in _keys(module)]
    for keys, module, about in sorted(constants, key=lambda each: len(each[0])):  # a key's own one before lists
        for key in keys:
            found.setdefault(key, (module, about))
    groups = {"headroom.io": "Headroom's own", "koordinator.sh": "Koordinator's", "": "Others"}
    for end, title in groups.items():
        mine = {key: about for key, about in found.items() if key.split("/")[0].endswith(end)}
        found = {key: about for key, about in found.items() if key not in mine}
        yield f"## {title}"
        yield _table(
            ("key", "in", "meaning"), [(_code(key), _code(at), about) for key, (at, about) in sorted(mine.items())]
        )


def _modules() -> Iterator[ModuleType]:
    for package in (shared, agent, manager):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.endswith("__main__"):
                yield importlib.import_module(each.name)


def _keys(module: ModuleType) -> Iterator[tuple[list[str], str, str]]:
    """The keys of each constant, with the module's name and the comment behind the constant or above it."""
    lines: list[str] = []
    for name, value in vars(module).items():
        texts = _texts(value) if name.isupper() else ()
        keys = [each for each in texts if _KEY.fullmatch(each) and not _KUBERNETES.match(each)]
        if not keys:
            continue
        lines = lines or inspect.getsource(module).splitlines()
        line = next((at for at, line in enumerate(lines) if re.match(rf"(\w+, )*{name}\b[^(]* = ", line)), 0)
        if not line:  # another module's
            continue
        behind, above = lines[line].partition("  # ")[2], lines[line - 1]
        yield keys, module.__name__, behind or (above[2:] if above.startswith("# ") else _words(name))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts((*value, *value.values()))
    elif isinstance(value, tuple | frozenset):
        for each in value:
            yield from _texts(each)


def _words(name: str) -> str:
    return name.strip("_").replace("_", " ").lower()


def _crds() -> Iterator[str]:
    for file in sorted(_CRDS.glob("*.yaml")):
        crd = yaml_file.parse(file.read_text(encoding="utf-8"))
        for version in crd["spec"]["versions"]:
            yield f"## {crd['spec']['names']['kind']} `{crd['spec']['group']}/{version['name']}`"
            rows = list(_fields("", version["schema"]["openAPIV3Schema"]))
            yield _table(("field", "type", "meaning"), rows)


def _fields(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        items = field.get("items", {})
        if here not in ("apiVersion", "kind", "metadata"):
            kind = field.get("type", "integer or string")
            yield (
                _code(here),
                f"{kind} of {items.get('type', 'any')}" if kind == "array" else kind,
                field.get("description", ""),
            )
        yield from _fields(here, field)
        yield from _fields(f"{here}[]", items)


class _Nothing:
    """Stands for what the routes go by: they are only listed, never called."""

    def __getattr__(self, name: str) -> "_Nothing":
        return self


def _paths() -> Iterator[str]:
    """The paths of the OpenAPI documents that the processes serve."""
    nothing = cast(Any, _Nothing())
    answers = http.application(
        reader=nothing,
        trends=nothing,
        registry=nothing,
        status=nothing,
        fleet=nothing,
        loops=nothing,
        version="0",
        now=nothing,
    )
    answers.include_router(extender.router(nothing, CollectorRegistry()))
    answers.include_router(explained.router(nothing))
    answers.include_router(workloads.router(nothing))
    answers.include_router(router.router(nothing, AutoscalerSettings()))
    yield "`/docs` on each port shows the same with the shapes of answers, `/openapi.json` is for programs."
    for title, document in (("Agent, port 9316", api.openapi("")), ("Manager, port 8080", answers.openapi())):
        yield f"## {title}"
        yield _table(("path", "parameters", "answer"), _operations(document))
    yield "The manager's page is `/`. Its webhook serves `/mutate-pods` and `/validate-config` on port 9443."


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            given = [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]
            yield _code(f"{method.upper()} {path}"), _code(", ".join(given)), operation.get("summary", "")
