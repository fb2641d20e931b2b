"""Node objects without machines as a cloud provider."""

import functools

from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.ledger import BooksLedger, Unwritten
from manager.autoscaler.cloudprovider.simulated.machines import Machines
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider


def make(request: ProviderRequest) -> SimulatedProvider:
    offer, kept = MachineOffer(request.file), BooksLedger(request.client, request.namespace)
    listed = functools.partial(fake_nodes.listed, request.client)
    if request.loops is None:
        return SimulatedProvider(offer, Unwritten(kept.read), listed, request.clock)
    Machines(request.client, kept, offer, request.clock).start(request.loops)
    return SimulatedProvider(offer, kept, listed, request.clock)


PLUGIN = ProviderPlugin(make=make, creates_groups=True)
