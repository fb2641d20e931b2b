"""How old what is on the screen is, and why: a table whose numbers stand still says so."""

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
QUIET_SECONDS = 3.0  # the manager may need that long for an answer without a word about it
LATE_REPORTS = 3  # so many intervals without a report from any node are no chance


class WriteProbe:
    """Renews a Lease of its own now and then: a server that answers may still be unable to store anything."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client.single_attempt(REQUEST_SECONDS)
        self._clock = clock
        self._next_at = 0.0
        self._problem = ""

    def problem(self) -> str:
        """Why the API server did not take the last write; empty when it did."""
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
    """What the screen goes by.

    `silent_seconds`: since the manager's last answer; `report_seconds`: the age of the newest report of any node (None:
    there is none); `write_problem`: why the API server stores nothing.
    """

    silent_seconds: float
    report_seconds: float | None
    report_interval_seconds: float
    write_problem: str = ""


def warnings(seen: Seen) -> list[str]:
    """What makes the numbers older than they look, each with the age of the data; empty while they are fresh."""
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
    """Of the ages that are known."""
    return min((age for age in ages if age is not None), default=None)
