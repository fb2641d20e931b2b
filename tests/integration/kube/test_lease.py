import threading
from collections.abc import Callable
from typing import TypeAlias

from shared import names
from shared.clock import SystemClock
from shared.kube.lease import LeaderElector, LeaseTimes
from shared.kube.resources import LEASES
from shared.stop import Stop
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule

Start: TypeAlias = Callable[[Callable[[Stop], None]], Stop]

TIMES = LeaseTimes(lease_seconds=1, renew_deadline_seconds=0.7, retry_seconds=0.1)


class Candidates:
    """Managers that want to lead, in threads of their own, and a witness who looks all the time."""

    def __init__(self, server: ApiServer, namespace: str, start: Start, count: int) -> None:
        self.electors: list[LeaderElector] = []
        self.stops: list[threading.Event] = []
        self.working: set[int] = set()
        self.turns = 0
        self.overlaps: list[list[int]] = []
        for number in range(count):
            client = server.client(server.manager_connection())
            identity = f"candidate-{number}"
            elector = LeaderElector(client, namespace, names.MANAGER_LEASE, identity, SystemClock(), times=TIMES)
            self.electors.append(elector)
            self.stops.append(start(self._body(number, elector)))
        start(self._witness)

    def _body(self, number: int, elector: LeaderElector) -> Callable[[Stop], None]:
        def started() -> None:
            self.turns += 1
            self.working.add(number)

        return lambda stop: elector.run(stop, started, lambda: self.working.discard(number))

    def _witness(self, stop: threading.Event) -> None:
        while not stop.wait(0.001):
            leading = self.leading()
            if len(leading) > 1:
                self.overlaps.append(leading)

    def leading(self) -> list[int]:
        # Asked twice, since one may stop and another start between two questions.
        first = [number for number, elector in enumerate(self.electors) if elector.is_leader()]
        return [number for number in first if self.electors[number].is_leader()]

    def at_work(self) -> list[int]:
        """The one that leads, and does what only a leader does."""
        leading = self.leading()
        return leading if self.working == set(leading) else []


def test_under_contention_and_faults_there_are_never_two_leaders(
    server: ApiServer, install_namespace: str, start: Start
) -> None:
    candidates = Candidates(server, install_namespace, start, 3)
    eventually(candidates.leading)
    faults = [
        rule("close", "leases", times=0),
        rule("status", "leases", times=0, status=500),
        rule("delay", "leases", times=0, seconds=0.8),
        rule("truncate", "leases", times=0),
    ]
    for fault in faults:
        # Long enough for a leader to run out of its time, then a chance for somebody.
        server.fault(fault)
        eventually(lambda: not candidates.leading() and not candidates.working)
        server.heal()
        eventually(candidates.leading)
    assert candidates.overlaps == []
    assert candidates.turns >= len(faults)


def test_the_next_one_leads_when_the_leader_stops(server: ApiServer, install_namespace: str, start: Start) -> None:
    candidates = Candidates(server, install_namespace, start, 2)
    (first,) = eventually(candidates.at_work)
    candidates.stops[first].set()
    eventually(lambda: candidates.at_work() == [1 - first])
    assert candidates.overlaps == []
    lease = server.client().get(LEASES, names.MANAGER_LEASE, install_namespace)
    assert lease["spec"]["holderIdentity"] == f"candidate-{1 - first}"
    assert lease["spec"]["leaseTransitions"] >= 1
