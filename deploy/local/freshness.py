"""The age of the data on the screen, and its cause: warns when the numbers of the table stop changing."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared import durations
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import LEASES
from shared.names import INSTALL_NAMESPACE

LEASE_NAME = "headroom-up"
PROBE_SECONDS = 5.0
REQUEST_SECONDS = 2.0
QUIET_SECONDS = 3.0  # the manager may legitimately take that long to answer
LATE_REPORTS = 3  # so many intervals without a report from any node are no coincidence


class WriteProbe:
    """Renews its own Lease periodically: a server that answers reads may still be unable to store writes."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client.single_attempt(REQUEST_SECONDS)
        self._clock = clock
        self._next_at = 0.0
        self._problem = ""

    def problem(self) -> str:
        """Why the API server refused the last write; empty if it accepted it."""
        if (now := self._clock.monotonic()) >= self._next_at:
            self._next_at = now + PROBE_SECONDS
            try:
                self._renew()
                self._problem = ""
            except HeadroomError as error:
                self._problem = " ".join(str(error).split())
        return self._problem

    def _renew(self) -> None:
        spec = {"holderIdentity": LEASE_NAME, "renewTime": durations.micro_timestamp(self._clock.now())}
        try:
            self._client.patch(LEASES, LEASE_NAME, {"spec": spec}, INSTALL_NAMESPACE)
        except NotFound:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": LEASE_NAME, "namespace": INSTALL_NAMESPACE},
                "spec": spec,
            }
            self._client.create(LEASES, body, INSTALL_NAMESPACE)


@dataclass(frozen=True)
class Seen:
    """The inputs for the warnings.

    `silent_seconds`: since the manager's last answer; `report_seconds`: the age of the newest report of any node (None:
    there is none); `write_problem`: why the API server stores no writes.
    """

    silent_seconds: float
    report_seconds: float | None
    report_interval_seconds: float
    write_problem: str = ""


def warnings(seen: Seen) -> list[str]:
    """Why the numbers are older than they look, each with the age of the data; empty while the numbers are fresh."""
    known = seen.report_seconds
    age = "there is no report" if known is None else f"the newest report is {durations.render(int(known))} old"
    found = []
    if seen.silent_seconds > QUIET_SECONDS:
        found.append(f"the manager does not answer: the table is {durations.render(int(seen.silent_seconds))} old")
    if seen.write_problem:
        found.append(f"the API server takes no writes: {age} ({seen.write_problem})")
    elif known is not None and known > LATE_REPORTS * seen.report_interval_seconds:
        found.append(f"no report arrives: {age}")
    return found


def newest_report_seconds(ages: Sequence[float | None]) -> float | None:
    """The smallest known age."""
    return min((age for age in ages if age is not None), default=None)
