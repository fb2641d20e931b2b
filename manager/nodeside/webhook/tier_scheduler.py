"""The scheduler of new Mid and Batch pods: the release's own one, while it renews its Lease."""

import logging
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from manager.nodeside.reports import PersistentProblems, ReportedProblem
from shared import durations
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.events import WARNING, EventReason, ObjectRef
from shared.kube.lease import Lease
from shared.kube.resources import LEASES
from shared.metric_families import GaugeFamily
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
REQUEST_SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # until a silent scheduler is reported, if pods wait for it
_MESSAGE = (
    "scheduler {name} has not renewed its Lease for {seconds} s: new Mid and Batch pods {new}, and existing pods that "
    "name it wait. Look at its pods: kubectl --namespace {namespace} get pods -l app.kubernetes.io/component=scheduler"
)
SILENT = EventReason("SchedulerNotRunning", WARNING, _MESSAGE)

_SILENT_SECONDS = GaugeFamily(
    "headroom_manager_scheduler_silent_seconds",
    "Seconds since the scheduler of Mid and Batch pods renewed its Lease, or since the manager started.",
)


def renewal_of(client: Client, namespace: str, name: str) -> str | None:
    """When the Lease was last renewed, as it says; None without a Lease. Raises HeadroomError."""
    try:
        return client.single_attempt(REQUEST_SECONDS).get(LEASES, name, namespace, into=Lease).spec.renew_time
    except NotFound:
        return None


class TierScheduler:
    """The scheduler `name`, whose Lease has this name too. Call `start` once. `renewal` reads the Lease.

    A pod's scheduler never changes. So if it is silent for `fallback_seconds`, new pods keep the default scheduler;
    with 0 they get this one anyway.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        renewal: Callable[[], str | None],
        clock: Clock,
        *,
        fallback_seconds: float,
        standing: PersistentProblems,
        registry: CollectorRegistry,
    ) -> None:
        self._renewal = renewal
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._fallback_seconds = fallback_seconds
        self._standing = standing
        self._renewed: str | None = None
        self._since: float | None = None  # of the last renewal, monotonic
        self._began = self._clock.monotonic()
        self._is_reported = False
        _SILENT_SECONDS.register(registry).set_function(lambda: self._silent_seconds(self._began))

    def start(self, loops: Loops) -> None:
        """Follows the Lease from now on."""
        loops.every("scheduler-lease", lambda: LOOK_SECONDS, self.look)

    def for_new_pods(self) -> str:
        """The name that new pods get; empty: they keep theirs."""
        if self._fallback_seconds == 0:
            return self._name
        return self._name if self._silent_seconds(float("-inf")) < self._fallback_seconds else ""

    def look(self) -> None:
        """Reads the Lease once, and reports a scheduler that falls silent or is back."""
        try:
            self._see(self._renewal())
        except (HeadroomError, ValueError) as error:
            logger.debug("the scheduler's Lease was not read: %s", error)
            return
        self._report()

    def _see(self, renewed: str | None) -> None:
        if renewed is None or renewed == self._renewed:
            return
        # Only the first renewal that is seen may be an old one. Every later one has just been written.
        age = 0.0 if self._renewed is not None else max(0.0, self._clock.now() - durations.instant(renewed))
        self._renewed, self._since = renewed, self._clock.monotonic() - age

    def _silent_seconds(self, otherwise: float) -> float:
        return self._clock.monotonic() - (otherwise if self._since is None else self._since)

    def _report(self) -> None:
        seconds = min(self._silent_seconds(self._began), self._clock.monotonic() - self._began)
        is_silent = seconds >= (self._fallback_seconds or PATIENCE_SECONDS)
        if is_silent == self._is_reported:
            return
        self._is_reported = is_silent
        problems = []
        if is_silent:
            new = "wait for it" if self._fallback_seconds == 0 else "keep the default scheduler until it does"
            _, reason, message = SILENT.say(name=self._name, seconds=round(seconds), new=new, namespace=self._namespace)
            logger.warning("%s", message)
            regarding = ObjectRef(LEASES.api_version, "Lease", self._name, self._namespace)
            problems.append(ReportedProblem(regarding, reason, message))
        else:
            logger.info("scheduler %s renews its Lease again: new Mid and Batch pods get it", self._name)
        self._standing.replace(f"Lease {self._namespace}/{self._name}", problems)
