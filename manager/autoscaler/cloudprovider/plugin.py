"""Cloud providers by name: what each declares of itself, and how the one that is asked for is found and made.

`--cloud-provider` names an entry point of the group `headroom.cloudproviders`, which stands for a `ProviderPlugin`. The
built-in providers are entry points of the same group. What a provider needs of the cluster stands beside its code, in
`chart.yaml`, from which the Helm chart grants it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from manager.autoscaler.cloudprovider.contract import GroupOptions, Provider
from manager.autoscaler.cloudprovider.rights import Right
from shared import plugins
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.plugins import PluginGroup
from shared.telemetry import Loops

GROUP = PluginGroup("headroom.cloudproviders", "cloud provider")
SOURCE, FIELD = "--cloud-provider", "cloudProvider"
DISCOVERY = "--node-group-auto-discovery"


class ProviderGroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The base of a provider's own options of one group, which a node groups file has under the provider's name."""

    def problems(self, *, as_escalator: bool) -> Iterator[str]:
        """Why a group with these options cannot be scaled. `as_escalator`: only what Escalator refuses, too."""
        return iter(())


@dataclass(frozen=True)
class ManagedGroups:
    """What a provider may need to know about the managed groups, all by id: the listed ones, those in enforce mode,
    the options of its own that they have, and the options of groups whose cloud overrides none. `minds_drift`: it
    matters whether instances have drifted, so a cloud may be asked for that. `discovery` says in the words of the cloud
    which further groups are managed.
    """

    listed: Collection[str] = ()
    enforced: Collection[str] = ()
    own_options: Mapping[str, ProviderGroupOptions] = field(default_factory=dict)
    options: GroupOptions = field(default_factory=GroupOptions)
    minds_drift: bool = False
    discovery: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class ProviderRequest:
    """What a provider is made with.

    `config` is the file that `--cloud-config` names, None without one. `loops` run the provider's own threads; without
    them no thread may run, the provider is only read from, and nothing is written. `namespace` is the manager's.
    """

    config: Path | None
    client: Client
    namespace: str
    clock: Clock
    groups: ManagedGroups = field(default_factory=ManagedGroups)
    loops: Loops | None = None

    @property
    def file(self) -> Path:
        """The file of a provider that needs one. Raises InvalidInput without it."""
        if self.config is None:
            raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem="needs a file")
        return self.config


def no_rights(_: ProviderRequest) -> Sequence[Right]:
    return ()


@dataclass(frozen=True, kw_only=True)
class ProviderPlugin:
    """A cloud provider. `make` may raise InvalidInput for a file that means nothing. `rights` are what its calls need
    in this cluster beside the autoscaler's own; they are reviewed, and missing ones are reported.

    `needs_config`: it cannot do without a file. `has_prices`: `Provider.pricing` may return a model. `creates_groups`:
    it supports `machine_types`, `theoretical` and `create_group`, for which `creation_needs` says in words what is
    missing where it does not. `with_file`: the plug-in as it is with this file, where that changes what it can do; it
    may raise InvalidInput. `groups_opt_in`: it lists only groups that ask in the
    cloud for an autoscaler, so that they need not be listed here, too. `discovers_groups`: it does so where
    `ManagedGroups.discovery` is given. `marks_own_nodes`: it marks all of its nodes with `karpenter.sh/do-not-disrupt`,
    which therefore keeps none of them here.
    """

    make: Callable[[ProviderRequest], Provider]
    rights: Callable[[ProviderRequest], Sequence[Right]] = no_rights
    needs_config: bool = True
    has_prices: bool = True
    creates_groups: bool = False
    creation_needs: str = ""
    groups_opt_in: bool = False
    discovers_groups: bool = False
    marks_own_nodes: bool = False
    group_options: type[ProviderGroupOptions] | None = None
    with_file: "Callable[[Path | None], ProviderPlugin] | None" = None


def find(name: str) -> ProviderPlugin:
    """Raises InvalidInput for an unknown provider, and for one that cannot be loaded."""
    found = GROUP.load(name, source=SOURCE, field=FIELD)
    if not isinstance(found, ProviderPlugin):
        raise _unusable(name, f"stands for a {type(found).__name__}, and not for a ProviderPlugin")
    return found


def find_with_file(name: str, config: str) -> ProviderPlugin:
    """As its file makes it. Raises InvalidInput, for the file, too."""
    found = find(name)
    return found if found.with_file is None else found.with_file(Path(config) if config else None)


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


def check(name: str, config: Path | str | None) -> None:
    """Checks that the flags fit together. Raises InvalidInput."""
    if find(name).needs_config and not config:
        raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem=f"{name} needs a file")


def build(name: str, request: ProviderRequest) -> Provider:
    """Raises InvalidInput for unknown names and invalid configurations."""
    check(name, request.config)
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
