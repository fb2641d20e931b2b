"""What happened in a run, for people: each fault, each accepted write and each request to the cloud on a line."""

from collections.abc import Callable

from tests.simulation.cloud import CloudRequest
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Fault
from tests.simulation.network import AcceptedWrite
from tests.simulation.virtual import WORLD

_ROUTINE = ("/leases", "/events", "reviews")  # parts of paths that would bury the rest


def tell(cluster: Cluster, say: Callable[[str], None]) -> None:
    """Says each thing when it happens, from now on."""

    def fault(each: Fault, *, begins: bool) -> None:
        say(f"{WORLD.now:9.2f}  {each}" if begins else f"{WORLD.now:9.2f}  fault {each.number} is over")

    def write(each: AcceptedWrite) -> None:
        if any(part in each.path for part in _ROUTINE):
            return
        late = f", sent {each.at - each.begun:.1f} s before" if each.at - each.begun > 1.0 else ""
        say(f"{each.at:9.2f}  {each.process.name}: {each.method} {each.path}, {each.status}{late}")

    def request(each: CloudRequest) -> None:
        sizes = f"from {each.before.target} to {each.after.target}"
        say(f"{each.at:9.2f}  {each.process.name}: {each.what} of {each.group}, {sizes}")

    cluster.faults.watchers.append(fault)
    cluster.journal.watchers.append(write)
    cluster.cloud.watchers.append(request)
