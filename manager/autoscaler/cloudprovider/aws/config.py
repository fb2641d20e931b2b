"""The file that `--cloud-config` names; it is optional if the library's own chain of settings suffices.

region: eu-central-1           # else AWS_REGION, then the library's own chain, as for credentials
profile: ""                    # of the library's own files
assume_role_arn: ""            # the role to assume
endpoint_url: ""               # instead of AWS's own, for all services
timeout: 20s                   # of one call
discover:                      # also observe groups with all of these tags; empty: any value
  k8s.io/cluster-autoscaler/enabled: ""
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from shared import durations, yaml_file
from shared.errors import InvalidInput

MAX_TIMEOUT_SECONDS = 600.0
DEFAULT_TIMEOUT = "20s"

_TagKey = Annotated[str, Meta(min_length=1, max_length=128)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    region: str = ""
    profile: str = ""
    assume_role_arn: Annotated[str, Meta(pattern=r"^(arn:[^:]+:iam::[0-9]{12}:role/.+)?$")] = ""
    endpoint_url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    timeout: str | float = DEFAULT_TIMEOUT
    discover: dict[_TagKey, str] = {}


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """Endpoint, identity and timeout. The library decides about empty values."""

    region: str = ""
    profile: str = ""
    assume_role_arn: str = ""
    endpoint_url: str = ""
    timeout_seconds: float = 20.0
    discover: Mapping[str, str] = field(default_factory=dict)


def load(path: Path | None) -> AwsConfig:
    """Raises InvalidInput that names file, field and value."""
    if path is None:
        return AwsConfig()
    file = yaml_file.load(path, _File)
    try:
        timeout = durations.parse(file.timeout) if isinstance(file.timeout, str) else file.timeout
    except ValueError as error:
        raise InvalidInput(source=str(path), field="timeout", value=file.timeout, problem=str(error)) from error
    if not 0 < timeout <= MAX_TIMEOUT_SECONDS:
        problem = f"not within {MAX_TIMEOUT_SECONDS:g} s, or none"
        raise InvalidInput(source=str(path), field="timeout", value=file.timeout, problem=problem)
    return AwsConfig(file.region, file.profile, file.assume_role_arn, file.endpoint_url, timeout, file.discover)
