"""Builds the provider that `--cloud-provider` names."""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from manager.autoscaler.cloudprovider import aws, externalgrpc, simulated
from manager.autoscaler.cloudprovider.aws import config as aws_config
from manager.autoscaler.cloudprovider.aws.fleet import FleetOptions
from manager.autoscaler.cloudprovider.aws.provider import AwsProvider, GroupSelection
from manager.autoscaler.cloudprovider.aws.session import Session
from manager.autoscaler.cloudprovider.contract import GroupOptions, Provider
from manager.autoscaler.cloudprovider.externalgrpc import config
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.ledger import BooksLedger, Unwritten
from manager.autoscaler.cloudprovider.simulated.machines import Machines
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.telemetry import Loops

NAMES = (simulated.NAME, externalgrpc.NAME, aws.NAME)
_NEED_NO_FILE = (aws.NAME,)


@dataclass(frozen=True)
class ManagedGroups:
    """What a provider may need to know about the managed groups, all by id: the listed ones, those in enforce mode,
    their AWS options, and the options of groups whose cloud overrides none.
    """

    listed: Collection[str] = ()
    enforced: Collection[str] = ()
    fleets: Mapping[str, FleetOptions] = field(default_factory=dict)
    options: GroupOptions = field(default_factory=GroupOptions)


def build(
    name: str,
    cloud_config: str,
    *,
    client: Client,
    namespace: str,
    clock: Clock,
    loops: Loops,
    ours: ManagedGroups | None = None,
) -> Provider:
    """`loops` run the provider's own threads. Raises InvalidInput for unknown names and invalid configurations."""
    check(name, cloud_config)
    if name == aws.NAME:
        return _aws(cloud_config, clock, ours or ManagedGroups())
    if name == externalgrpc.NAME:
        return ExternalGrpcProvider(config.load(Path(cloud_config)), clock, (ours or ManagedGroups()).options)
    offer, ledger = MachineOffer(Path(cloud_config)), BooksLedger(client, namespace)
    Machines(client, ledger, offer, clock).start(loops)
    return SimulatedProvider(offer, ledger, functools.partial(fake_nodes.listed, client), clock)


def read_only(
    name: str,
    cloud_config: str,
    *,
    client: Client,
    namespace: str,
    clock: Clock,
    ours: ManagedGroups | None = None,
) -> Provider:
    """The same cloud for reads only: no thread runs, and nothing is written. Raises InvalidInput."""
    check(name, cloud_config)
    if name == aws.NAME:
        return _aws(cloud_config, clock, replace(ours or ManagedGroups(), enforced=()))
    if name == externalgrpc.NAME:
        return ExternalGrpcProvider(config.load(Path(cloud_config)), clock, (ours or ManagedGroups()).options)
    offer, ledger = MachineOffer(Path(cloud_config)), Unwritten(BooksLedger(client, namespace).read)
    return SimulatedProvider(offer, ledger, functools.partial(fake_nodes.listed, client), clock)


def check(name: str, cloud_config: str) -> None:
    """Checks that the flags fit together. Raises InvalidInput."""
    if name not in NAMES:
        raise InvalidInput(
            source="--cloud-provider", field="cloudProvider", value=name, problem=f"known are {', '.join(NAMES)}"
        )
    if not cloud_config and name not in _NEED_NO_FILE:
        raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem=f"{name} needs a file")


def _aws(cloud_config: str, clock: Clock, ours: ManagedGroups) -> AwsProvider:
    file = aws_config.load(Path(cloud_config) if cloud_config else None)
    session = Session(file, clock)
    wanted = GroupSelection(ours.listed, file.discover, ours.fleets, ours.enforced)
    return AwsProvider(session.ask, wanted, clock, close=session.close)
