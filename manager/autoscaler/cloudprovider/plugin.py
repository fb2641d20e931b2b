"""What a cloud provider declares of itself: how it is made, what it can do, and its options in node group files.

`--cloud-provider` names an entry point of the group `headroom.cloudproviders`, which stands for a `ProviderPlugin`. The
built-in providers are entry points of the same group. What a provider needs of the cluster stands beside its code, in
`chart.yaml`, from which the Helm chart grants it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from manager.autoscaler.cloudprovider.contract import GroupOptions, Provider
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.telemetry import Loops


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
    them no thread may run, and the provider is only read from. `namespace` is the manager's.
    """

    config: Path | None
    client: Client
    namespace: str
    clock: Clock
    groups: ManagedGroups
    loops: Loops | None = None

    @property
    def file(self) -> Path:
        """The file of a provider that needs one. Raises InvalidInput without it."""
        if self.config is None:
            raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem="a file is needed")
        return self.config


@dataclass(frozen=True, kw_only=True)
class ProviderPlugin:
    """A cloud provider. `make` may raise InvalidInput for a file that means nothing.

    `needs_config`: it cannot do without a file. `has_prices`: `Provider.pricing` may return a model. `creates_groups`:
    it supports `machine_types`, `theoretical` and `create_group`. `groups_opt_in`: it lists only groups that ask in the
    cloud for an autoscaler, so that they need not be listed here, too. `discovers_groups`: it does so where
    `ManagedGroups.discovery` is given.
    """

    make: Callable[[ProviderRequest], Provider]
    needs_config: bool = True
    has_prices: bool = True
    creates_groups: bool = False
    groups_opt_in: bool = False
    discovers_groups: bool = False
    group_options: type[ProviderGroupOptions] | None = None
