"""The provider that `--cloud-provider` names."""

import functools
from pathlib import Path

from manager.autoscaler.cloudprovider import externalgrpc, simulated
from manager.autoscaler.cloudprovider.contract import Provider
from manager.autoscaler.cloudprovider.externalgrpc import config
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.ledger import Ledger, Unwritten
from manager.autoscaler.cloudprovider.simulated.machines import Machines
from manager.autoscaler.cloudprovider.simulated.offer import Offer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.telemetry import Loops

NAMES = (simulated.NAME, externalgrpc.NAME)


def build(
    name: str,
    cloud_config: str,
    *,
    client: Client,
    namespace: str,
    clock: Clock,
    loops: Loops,
) -> Provider:
    """`loops` run what a provider does by itself. Raises InvalidInput for unknown names and bad configurations."""
    check(name, cloud_config)
    if name == externalgrpc.NAME:
        return ExternalGrpcProvider(config.load(Path(cloud_config)), clock)
    offer, ledger = Offer(Path(cloud_config)), Ledger(client, namespace)
    Machines(client, ledger, offer, clock).start(loops)
    return SimulatedProvider(offer, ledger, functools.partial(fake_nodes.listed, client), clock)


def read_only(name: str, cloud_config: str, *, client: Client, namespace: str, clock: Clock) -> Provider:
    """The same cloud for whoever only asks: nothing runs here, and nothing is written. Raises InvalidInput."""
    check(name, cloud_config)
    if name == externalgrpc.NAME:
        return ExternalGrpcProvider(config.load(Path(cloud_config)), clock)
    offer, ledger = Offer(Path(cloud_config)), Unwritten(Ledger(client, namespace).read)
    return SimulatedProvider(offer, ledger, functools.partial(fake_nodes.listed, client), clock)


def check(name: str, cloud_config: str) -> None:
    """Whether the flags go together. Raises InvalidInput."""
    if name not in NAMES:
        raise InvalidInput(
            source="--cloud-provider", field="cloudProvider", value=name, problem=f"known are {', '.join(NAMES)}"
        )
    if not cloud_config:
        raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem=f"{name} needs a file")
