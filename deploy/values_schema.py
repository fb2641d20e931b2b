"""Generates the parts of the chart's values.schema.json that follow from the code: `python -m deploy.values_schema`.

Definitions with a capital letter come from the settings structs, the colocation strategy and the arguments of
load-aware scheduling, so that the chart accepts every setting of the code, and refuses every other key. The rest of the
file is handwritten.
"""

import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from agent.enforcer.settings import EnforcerSettings
from agent.settings import AgentSettings
from manager.daemon_settings import DaemonSettings
from manager.nodeside.scheduling.args import LoadAwareArgs
from shared import settings
from shared.api.colocation import BOUNDS, MAX_NODE_CONFIGS, NODE_CONFIGS, WIRE_NAMES, ColocationStrategy
from shared.api.selectors import LabelSelector
from shared.api.thresholds import CLUSTER, MAX_NODE_STRATEGIES, NODES, ThresholdStrategy

Schema: TypeAlias = dict[str, Any]

CHART = Path(__file__).parent / "helm" / "headroom"
FILE = CHART / "values.schema.json"
REMOVED_FILE = CHART / "files" / "removed-settings.json"  # what the templates answer to removed settings
SECONDS = "_seconds"

# Settings that the chart itself decides: where the process is, its servers, and its files.
AGENT_CHOSEN = frozenset(
    {
        *("node_name", "kubeconfig", "listen", "state_dir", "cgroup_root", "proc_root"),
        *("tls", "tls_certificate_directory", "authorization"),
        *("enforcer_orders_dir", "enforcer_status_dir"),
    }
)
ENFORCER_CHOSEN = frozenset({"orders_dir", "status_dir", "cgroup_root", "cgroup_parent"})
MANAGER_CHOSEN = frozenset(
    {
        *("kubeconfig", "namespace", "config_namespace", "config_name", "listen", "leader_elect", "identity"),
        *("tls", "authorization"),
        *("webhook_listen", "webhook_certificate_directory", "webhook_secret"),
        *("webhook_configuration", "webhook_hosts", "load_aware_args"),
        *("scheduler_name", "scheduler_fallback_seconds", "scheduler_account"),
        *("cloud_provider", "cloud_config", "autoscaling_mode"),
    }
)

_DURATION = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$",
}


def completed(document: Schema) -> Schema:
    """`document` with its generated definitions renewed."""
    written = {name: schema for name, schema in document["definitions"].items() if not name[0].isupper()}
    return document | {"definitions": written | generated()}


def generated() -> dict[str, Schema]:
    """Definitions by name."""
    (_, selector, _, thresholds), parts = msgspec.json.schema_components(
        (ColocationStrategy, LabelSelector, LoadAwareArgs, ThresholdStrategy),
        schema_hook=_anything,
        ref_template="#/definitions/{name}",
    )
    parts = {name: _undocumented(part) for name, part in parts.items()}
    strategy = _bounded(parts.pop(ColocationStrategy.__name__))
    node_config = {"name": {"type": "string"}, "nodeSelector": selector}
    per_node = _with(parts[ThresholdStrategy.__name__], node_config)
    strategies = {"type": "array", "maxItems": MAX_NODE_STRATEGIES, "items": per_node}
    threshold_config = {CLUSTER: thresholds, NODES: strategies}
    node_configs = {"type": "array", "maxItems": MAX_NODE_CONFIGS, "items": _with(strategy, node_config)}
    return {
        "AgentSettings": _settings(AgentSettings, AGENT_CHOSEN),
        "EnforcerSettings": _settings(EnforcerSettings, ENFORCER_CHOSEN),
        "ManagerSettings": _settings(DaemonSettings, MANAGER_CHOSEN),
        "ColocationStrategy": _with(strategy, {NODE_CONFIGS: node_configs}),
        "ThresholdConfig": {"type": "object", "properties": threshold_config, "additionalProperties": False},
        **parts,
    }


def removed() -> Schema:
    """The removed settings of each process by key, with what replaces each."""
    kinds: dict[str, type[msgspec.Struct]] = {"agent": AgentSettings, "manager": DaemonSettings}
    return {
        process: {settings.key(name): text for name, text in settings.removed(kind).items()}
        for process, kind in kinds.items()
    }


def rendered(document: Schema) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _settings(kind: type[msgspec.Struct], chosen: frozenset[str]) -> Schema:
    """The `--config` file of a process, without the fields that are `chosen` for it.

    Removed settings are refused by the templates, which can say why.
    """
    properties = settings.schemas(kind)
    keys = dict(zip((field.name for field in settings.fields(kind)), settings.shown(kind()), strict=True))
    known = {keys[name]: _field(name, schema) for name, schema in properties.items() if name not in chosen}
    gone = {settings.key(name): {"description": f"Removed. {text}"} for name, text in settings.removed(kind).items()}
    return {
        "type": "object",
        "properties": gone | known,
        "additionalProperties": False,
    }


def _field(name: str, schema: Schema) -> Schema:
    """Seconds may be written as a duration too."""
    about = {key: schema.pop(key) for key in ("description", "default") if key in schema}
    return about | ({"anyOf": [schema, _DURATION]} if name.endswith(SECONDS) else schema)


def _anything(_kind: type) -> Schema:
    return {"description": "Anything"}


def _undocumented(schema: Schema) -> Schema:
    """The schema without the docstring, which is for readers of the code."""
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def _bounded(strategy: Schema) -> Schema:
    """The schema with the bounds that the manager and its webhook enforce on the strategy."""
    properties = dict(strategy["properties"])
    for name, bound in BOUNDS.items():
        least = {"exclusiveMinimum" if bound.open else "minimum": bound.low}
        most = {} if bound.high is None else {"maximum": bound.high}
        properties[WIRE_NAMES[name]] = properties[WIRE_NAMES[name]] | least | most
    return strategy | {"properties": properties}


def _with(schema: Schema, properties: Schema) -> Schema:
    return schema | {"properties": schema["properties"] | properties}


def main() -> int:
    FILE.write_text(rendered(completed(json.loads(FILE.read_text("utf-8")))), encoding="utf-8")
    REMOVED_FILE.write_text(rendered(removed()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
