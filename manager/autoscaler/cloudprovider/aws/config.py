"""The file that `--cloud-config` names; it is optional if the library's own chain of settings suffices.

region: eu-central-1           # else AWS_REGION, then the library's own chain, as for credentials
assume_role_arn: ""            # the role to assume
endpoint_url: ""               # instead of AWS's own, for all services
discover:                      # also observe groups with all of these tags; empty: any value
  k8s.io/cluster-autoscaler/enabled: ""
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from shared import yaml_file
from shared.errors import InvalidInput

DISCOVERY_FLAG, DISCOVERY_FIELD = "--node-group-auto-discovery", "nodeGroupAutoDiscovery"
_KIND = "asg:"
_TAG_PREFIX = f"{_KIND}tag="

Tags = Mapping[str, str]  # a group has all of them; an empty value is any

_TagKey = Annotated[str, Meta(min_length=1, max_length=128)]


class AwsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Endpoint and identity. The library decides about empty values."""

    REMOVED: ClassVar[Mapping[str, str]] = {
        "profile": "Set the environment variable AWS_PROFILE of the manager.",
        "timeout": "A call to AWS may take 20 s, so remove the key.",
    }

    region: str = ""
    assume_role_arn: Annotated[str, Meta(pattern=r"^(arn:[^:]+:iam::[0-9]{12}:role/.+)?$")] = ""
    endpoint_url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    discover: dict[_TagKey, str] = {}


def load(path: Path | None) -> AwsConfig:
    """Raises InvalidInput that names file, field and value."""
    return AwsConfig() if path is None else yaml_file.load(path, AwsConfig)


def parse_discovery(texts: Iterable[str]) -> tuple[Tags, ...]:
    """Which groups ask for an autoscaler by their tags, in the words of Cluster Autoscaler's flag: each text is such as
    "asg:tag=k8s.io/cluster-autoscaler/enabled,team=web", and a group is found by any of them.

    A key without a value takes any value, "false" included. The command line splits at commas, so what does not begin
    like a text of its own goes on with the one before. Raises InvalidInput.
    """
    found = []
    for text in _whole(texts):
        pairs = [part.strip().partition("=") for part in text.removeprefix(_TAG_PREFIX).split(",")]
        if not text.startswith(_TAG_PREFIX) or not all(key for key, _, _ in pairs):
            problem = f"expected {_TAG_PREFIX}KEY,KEY=VALUE"
            raise InvalidInput(source=DISCOVERY_FLAG, field=DISCOVERY_FIELD, value=text, problem=problem)
        found.append({key: value for key, _, value in pairs})
    return tuple(found)


def _whole(texts: Iterable[str]) -> list[str]:
    joined: list[str] = []
    for text in texts:
        if joined and not text.startswith(_KIND):
            joined[-1] += f",{text}"
        else:
            joined.append(text)
    return joined
