"""Waits for the DaemonSet whose pods remove the agents' state from nodes."""

import threading
import time
from collections.abc import Callable

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import DAEMONSETS

REMOVAL_SECONDS = 120.0  # the old agent may take its grace period of 30 s to end first
ROUND_SECONDS = 1.0


class Unremoved(HeadroomError):
    """The agents' state is still on nodes when the time for its removal has passed."""


class _Status(Wire, frozen=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


@prepared
class _DaemonSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()

    @property
    def is_done(self) -> bool:
        """Whether every node has a ready pod of the DaemonSet, by a status about its present version."""
        status = self.status
        return (
            status.observed_generation == self.metadata.generation
            and status.number_ready == status.desired_number_scheduled
        )


def wait(
    client: Client, namespace: str, name: str, say: Callable[[str], None], *, seconds: float = REMOVAL_SECONDS
) -> None:
    """Returns once every node has a ready pod of the DaemonSet. Raises Unremoved, and API errors."""
    until = time.monotonic() + seconds
    while not (found := client.get(DAEMONSETS, name, namespace, into=_DaemonSet)).is_done:
        if time.monotonic() > until:
            nodes = found.status.desired_number_scheduled
            raise Unremoved(
                f"{nodes - found.status.number_ready} of {nodes} nodes still have their agents' state after "
                f"{seconds:g} s; the pods of daemonset {namespace}/{name} have the reason"
            )
        client.clock.wait(threading.Event(), ROUND_SECONDS)
    say(f"removed from {found.status.number_ready} nodes: the agents' state")
