"""Host applications as a NodeSLO of this node's name lists them, in clusters that have that kind."""

import logging
import random
import threading
from collections.abc import Callable

from agent.states_informer.refusals import Refusals
from shared.api.nodeslo import HostApplication, NodeSLO
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.informer import Change, Informer, Kind
from shared.kube.resources import NODESLOS
from shared.kube.retry import Backoff, Jitter
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

ABSENT_SECONDS = 300.0  # between two looks for a kind that the cluster does not have
_SLOWLY = Jitter(base_seconds=1.0, cap_seconds=ABSENT_SECONDS)

Check = Callable[[HostApplication, str], None]
Listener = Callable[[tuple[HostApplication, ...]], None]


class NodeSLOFollower:
    """Tells `on_change` the applications at every change, and none when the NodeSLO goes.

    `check` raises ValueError for an application that means nothing, given the name of its place; then all of that
    version are refused, and those before stay.
    """

    def __init__(
        self,
        client: Client,
        node_name: str,
        refusals: Refusals,
        *,
        check: Check,
        on_change: Listener,
    ) -> None:
        self._client = client.single_attempt()
        self._clock = client.clock
        self._selector = f"metadata.name={node_name}"
        self._refusals = refusals
        self._check = check
        self._on_change = on_change
        self._told: tuple[HostApplication, ...] = ()
        self._informer = Informer(
            client, NODESLOS, NodeSLO, on_change=self._changed, field_selector=self._selector, jitter=_SLOWLY
        )

    def start(self, loops: Loops) -> None:
        loops.start("nodeslo informer", self.run)

    def run(self, stop: threading.Event) -> None:
        """Follows the NodeSLO once its kind is there."""
        if self._wait_for_kind(stop):
            self._informer.run(stop)

    def _wait_for_kind(self, stop: threading.Event) -> bool:
        backoff = Backoff(self._clock, _SLOWLY)
        while not stop.is_set():
            try:
                self._client.list(NODESLOS, field_selector=self._selector)
                return True
            except NotFound:
                logger.debug("the cluster has no NodeSLOs")
                delay = ABSENT_SECONDS * random.uniform(0.5, 1.5)
            except HeadroomError as error:
                delay = backoff.delay_seconds(error)
                logger.warning("NodeSLOs cannot be listed: %s", error)
            self._clock.wait(stop, delay)
        return False

    def _changed(self, change: Change[NodeSLO]) -> None:
        if change.kind is Kind.SYNCED:
            return
        found = (
            () if change.new is None else self._refusals.accepted("NodeSLO", change.key, change.new, self._applications)
        )
        if found is not None and found != self._told:
            self._told = found
            self._on_change(found)

    def _applications(self, node_slo: NodeSLO) -> tuple[HostApplication, ...]:
        listed = node_slo.spec.host_applications or ()
        for place, application in enumerate(listed):
            self._check(application, f"spec.hostApplications[{place}]")
        if len({one.name for one in listed}) < len(listed):
            raise ValueError("spec.hostApplications: a name is there twice")
        return listed
