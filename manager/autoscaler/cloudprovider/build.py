"""Finds and builds the provider that `--cloud-provider` names."""

from collections.abc import Sequence
from pathlib import Path

from manager.autoscaler.cloudprovider.contract import Provider
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderPlugin, ProviderRequest
from shared import plugins
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.plugins import PluginGroup
from shared.telemetry import Loops

GROUP = PluginGroup("headroom.cloudproviders", "cloud provider")
SOURCE, FIELD = "--cloud-provider", "cloudProvider"
DISCOVERY = "--node-group-auto-discovery"


def find(name: str) -> ProviderPlugin:
    """Raises InvalidInput for an unknown provider, and for one that cannot be loaded."""
    found = GROUP.load(name, source=SOURCE, field=FIELD)
    if not isinstance(found, ProviderPlugin):
        raise _unusable(name, f"stands for a {type(found).__name__}, and not for a ProviderPlugin")
    return found


def opts_in(provider: ProviderPlugin | None, discovery: Sequence[str]) -> bool:
    """Whether all groups that the provider names have asked for an autoscaler.

    Raises InvalidInput if it cannot discover groups.
    """
    if provider is None or not discovery:
        return provider is not None and provider.groups_opt_in
    if not provider.discovers_groups:
        problem = "this cloud does not discover groups by a flag"
        raise InvalidInput(source=DISCOVERY, field="nodeGroupAutoDiscovery", value=list(discovery), problem=problem)
    return True


def check(name: str, cloud_config: str) -> None:
    """Checks that the flags fit together. Raises InvalidInput."""
    if find(name).needs_config and not cloud_config:
        raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem=f"{name} needs a file")


def build(
    name: str,
    cloud_config: str,
    *,
    client: Client,
    namespace: str,
    clock: Clock,
    loops: Loops | None = None,
    ours: ManagedGroups | None = None,
) -> Provider:
    """`loops` run the provider's own threads; without them, it is only read from, and nothing is written.

    Raises InvalidInput for unknown names and invalid configurations.
    """
    check(name, cloud_config)
    request = ProviderRequest(
        config=Path(cloud_config) if cloud_config else None,
        client=client,
        namespace=namespace,
        clock=clock,
        groups=ours or ManagedGroups(),
        loops=loops,
    )
    try:
        made = find(name).make(request)
    except InvalidInput:
        raise
    except BaseException as error:
        plugins.reraise_interrupt(error)
        raise _unusable(name, f"cannot make the provider: {plugins.told(error)}") from error
    if missing := [call for call in _CALLS if not callable(getattr(made, call, None))]:
        raise _unusable(name, f"makes a {type(made).__name__}, which has no {missing[0]}()")
    return made


_CALLS = tuple(name for name, value in vars(Provider).items() if callable(value) and not name.startswith("_"))


def _unusable(name: str, problem: str) -> InvalidInput:
    return InvalidInput(source=SOURCE, field=FIELD, value=name, problem=f"{GROUP.describe(name)} {problem}")
