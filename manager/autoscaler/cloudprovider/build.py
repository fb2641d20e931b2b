"""The provider that `--cloud-provider` names."""

from pathlib import Path

from manager.autoscaler.cloudprovider import externalgrpc, simulated
from manager.autoscaler.cloudprovider.contract import Provider
from manager.autoscaler.cloudprovider.externalgrpc import config
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.telemetry import Loops

NAMES = (simulated.NAME, externalgrpc.NAME)


def build(name: str, cloud_config: str, *, client: Client, namespace: str, clock: Clock, loops: Loops) -> Provider:
    """`loops` run what a provider does by itself. Raises InvalidInput for unknown names and bad configurations."""
    if name not in NAMES:
        raise InvalidInput(
            source="--cloud-provider", field="cloudProvider", value=name, problem=f"known are {', '.join(NAMES)}"
        )
    if not cloud_config:
        raise InvalidInput(source="--cloud-config", field="cloudConfig", value="", problem=f"{name} needs a file")
    if name == externalgrpc.NAME:
        return ExternalGrpcProvider(config.load(Path(cloud_config)), clock)
    provider = SimulatedProvider(Path(cloud_config), client, namespace, clock)
    provider.start(loops)
    return provider
