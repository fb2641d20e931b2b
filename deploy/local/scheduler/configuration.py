"""KubeSchedulerConfiguration: the fields that the embedded scheduler reads, and the file that a local cluster writes.

kube-scheduler and the embedded scheduler read the same file; the latter uses the extenders alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from shared import durations
from shared.errors import InvalidInput

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_TIMEOUT_SECONDS = 5.0


class TlsConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """PEM files, and the name that the extender's certificate must contain if it differs from the URL's host."""

    server_name: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class ExtenderConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One extender, which knows the nodes; an empty verb is not called. Extenders here neither bind nor preempt."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    weight: Annotated[int, Meta(gt=0)] = 1
    http_timeout: str = ""
    node_cache_capable: bool = False
    ignorable: bool = False
    enable_https: Annotated[bool, Meta(description="what the URL says counts")] = msgspec.field(
        default=False, name="enableHTTPS"
    )
    tls_config: TlsConfig = msgspec.field(default=TlsConfig(), name="tlsConfig")

    @property
    def timeout_seconds(self) -> float:
        """Raises ValueError."""
        return durations.parse(self.http_timeout) if self.http_timeout else DEFAULT_TIMEOUT_SECONDS


class SchedulerConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a KubeSchedulerConfiguration that the embedded scheduler uses."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    extenders: tuple[ExtenderConfig, ...] = ()


def load(file: Path) -> SchedulerConfiguration:
    """Raises InvalidInput."""
    source = str(file)
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(source=source, field="(document)", value=file.name, problem=str(error)) from error
    try:
        found = msgspec.convert(document, SchedulerConfiguration)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".") or "(document)"
        raise InvalidInput(source=source, field=field, value=document, problem=problem) from error
    for index, extender in enumerate(found.extenders):
        if not extender.node_cache_capable:
            field, problem = f"extenders[{index}].nodeCacheCapable", "whole nodes are not sent here: it has to be true"
            raise InvalidInput(source=source, field=field, value=False, problem=problem)
        try:
            durations.parse(extender.http_timeout or "0")
        except ValueError as error:
            field = f"extenders[{index}].httpTimeout"
            raise InvalidInput(source=source, field=field, value=extender.http_timeout, problem=str(error)) from error
    return found


def managers_extender(manager_url: str) -> dict[str, object]:
    """The manager as an extender. It is ignorable, so pods do not wait when the manager is down."""
    return {
        "urlPrefix": f"{manager_url}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "2s",
    }


def write(file: Path, manager_url: str, **more: Mapping[str, object] | bool) -> None:
    """Writes a configuration with the manager as the only extender, and with the fields in `more`."""
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **more,
        "extenders": [managers_extender(manager_url)],
    }
    file.write_text(yaml.safe_dump(document, sort_keys=False))
