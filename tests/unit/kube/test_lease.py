import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.lease import LeaderElector, LeaseTimes
from shared.stop import Stop
from tests.support import eventually
from tests.support.properties import examples, stride
from tests.unit.kube.scripted import Answer, Exchange, Request, ScriptedServer, answer, status

Start: TypeAlias = Callable[[Callable[[Stop], None]], Stop]

TIMES = LeaseTimes(lease_seconds=15, renew_deadline_seconds=10, retry_seconds=2)

# What can happen to one request: it never arrives; it is carried out and the answer is lost; the server fails; the
# way there or the way back takes so long that a deadline passes meanwhile.
FAULTS = ("lost", "answer lost", "failed", "late", "answer late")


class LeaseServer(ScriptedServer):
    """Keeps one Lease with a real resourceVersion check, and lets something happen to chosen requests."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.fault: str | None = None
        self.faults_at: dict[int, str] = {}  # by the number of the request
        self.check: Callable[[], None] = lambda: None
        super().__init__()

    def edit(self, **spec: object) -> None:
        """Another client writes it."""
        assert self.lease
        self.version += 1
        self.lease["spec"] |= spec
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    @property
    def holder(self) -> str | None:
        return self.lease["spec"].get("holderIdentity") if self.lease else None

    def next_answer(self, request: Request) -> Answer:
        number = len(self.requests)
        self.requests.append(request)
        fault = self.faults_at.get(number, self.fault)

        def serve(exchange: Exchange) -> None:
            if fault == "lost":
                return exchange.reset()
            if fault == "failed":
                return status(500, "InternalError")(exchange)
            if fault == "late":
                self.clock.advance(6)
            reply = self._carry_out(request)
            self.check()
            if fault == "answer late":
                self.clock.advance(6)
            return exchange.reset() if fault == "answer lost" else reply(exchange)

        return serve

    def _carry_out(self, request: Request) -> Answer:
        if request.method == "GET":
            return answer(self.lease) if self.lease else status(404, "NotFound")
        if request.method == "POST" and self.lease:
            return status(409, "AlreadyExists")
        if request.method == "PUT":
            if not self.lease:
                return status(404, "NotFound")
            if request.body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return status(409, "Conflict")
        self.version += 1
        self.lease = request.body
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return answer(self.lease)


class Skewed:
    """Another machine's view of the same time: its clocks run as fast, and show something else."""

    def __init__(self, base: ManualClock, offset_seconds: float) -> None:
        self._base = base
        self._offset = offset_seconds

    def now(self) -> float:
        return self._base.now() - 1000 * self._offset

    def monotonic(self) -> float:
        return self._base.monotonic() + self._offset

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return self._base.wait(event, seconds)

    def wait_notified(self, condition: threading.Condition, seconds: float) -> None:
        self._base.wait_notified(condition, seconds)


class Election:
    """Candidates a and b at one server; every request and every step checks that at most one of them leads."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = LeaseServer(self.clock)
        self.server.check = self.check
        self.a, self.b = (
            LeaderElector(
                Client(Connection(self.server.url), identity),
                "ns",
                "manager",
                identity,
                Skewed(self.clock, offset),
                times=TIMES,
            )
            for identity, offset in (("a", 0.0), ("b", 12345.0))
        )

    def check(self) -> None:
        assert not (self.a.is_leader() and self.b.is_leader())

    def step(self, candidate: LeaderElector, seconds: float = 0.0) -> bool:
        stood = candidate.stand()
        self.check()
        self.clock.advance(seconds)
        self.check()
        return stood


@pytest.fixture
def election() -> Iterator[Election]:
    election = Election()
    yield election
    election.server.close()


def test_the_first_candidate_leads_and_the_second_waits(election: Election) -> None:
    assert election.step(election.a)
    assert not election.step(election.b)
    assert election.a.is_leader()
    spec = (election.server.lease or {})["spec"]
    assert spec["holderIdentity"] == "a"
    assert spec["leaseDurationSeconds"] == 15
    assert spec.get("leaseTransitions", 0) == 0
    assert spec["acquireTime"] == spec["renewTime"] == "2023-11-14T22:13:20.000000Z"


def test_a_renewal_moves_only_the_renew_time(election: Election) -> None:
    election.step(election.a, 2)
    election.step(election.a)
    spec = (election.server.lease or {})["spec"]
    assert (spec["acquireTime"], spec["renewTime"]) == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:22.000000Z")


def test_a_leader_renews_by_one_request_until_another_writes_the_lease(election: Election) -> None:
    for methods in (["GET", "POST"], ["PUT"], ["PUT"]):
        assert election.step(election.a, 2)
        assert [each.method for each in election.server.requests] == methods
        election.server.requests.clear()
    election.server.edit(leaseTransitions=7)
    assert election.step(election.a, 2)
    assert [each.method for each in election.server.requests] == ["PUT", "GET", "PUT"]
    assert election.server.lease
    assert election.server.lease["spec"]["leaseTransitions"] == 7


def test_a_silent_leader_is_followed_when_its_lease_has_been_seen_unchanged_for_its_whole_length(
    election: Election,
) -> None:
    election.step(election.a, 3)
    election.step(election.b, 14.9)  # b first sees it three seconds after it was written: only that counts
    assert not election.step(election.b, 0.2)
    assert not election.a.is_leader()
    assert election.step(election.b)
    assert (election.server.lease or {})["spec"]["leaseTransitions"] == 1


def test_leadership_ends_by_itself_when_it_cannot_be_renewed(election: Election) -> None:
    election.step(election.a, 9.9)
    election.server.fault = "lost"
    assert election.a.is_leader()
    assert not election.step(election.a, 0.2)
    assert not election.a.is_leader()


def test_time_spent_writing_counts_against_the_writer(election: Election) -> None:
    election.server.faults_at[1] = "answer late"
    assert election.step(election.a)
    election.clock.advance(4.1)
    assert not election.a.is_leader()


def test_a_given_up_lease_is_free_at_once(election: Election) -> None:
    election.step(election.a)
    election.step(election.b)
    election.a.release()
    assert not election.a.is_leader()
    assert election.server.holder == ""
    assert election.step(election.b)


def test_nobody_gives_up_the_lease_of_another(election: Election) -> None:
    election.step(election.a)
    election.b.release()
    assert election.server.holder == "a"


def test_a_lease_that_is_deleted_under_its_leader_gives_no_second_leader(election: Election) -> None:
    election.step(election.a)
    election.step(election.b)
    election.server.lease = None
    assert not election.step(election.b)
    assert election.step(election.a)
    assert election.a.is_leader()


def test_a_lease_that_is_deleted_after_a_renewal_that_nobody_has_seen_gives_no_second_leader(
    election: Election,
) -> None:
    election.step(election.a)
    election.step(election.b, 9.9)
    election.step(election.a)
    election.server.lease = None
    election.clock.advance(9.9)
    assert election.a.is_leader()
    assert not election.step(election.b, 14.9)
    assert not election.step(election.b, 0.2)
    assert election.step(election.b)


def test_a_lease_handed_to_another_by_hand_ends_leadership_at_the_next_look(election: Election) -> None:
    election.step(election.a)
    election.server.edit(holderIdentity="b")
    assert not election.step(election.a)
    assert not election.a.is_leader()


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, {"leaseDurationSeconds": 0, "holderIdentity": ""}])
def test_a_lease_without_a_holder_is_free(election: Election, spec: dict[str, object]) -> None:
    election.server.lease = {
        "metadata": {"name": "manager", "resourceVersion": "1", "labels": {"x": "y"}},
        "spec": spec,
    }
    assert election.step(election.a)
    assert election.server.lease["metadata"]["labels"] == {"x": "y"}


@pytest.mark.parametrize("duration", [-5, 0, None])
def test_a_senseless_duration_counts_as_our_own(election: Election, duration: int | None) -> None:
    spec = {"holderIdentity": "other", "leaseDurationSeconds": duration}
    election.server.lease = {"metadata": {"name": "manager", "resourceVersion": "1"}, "spec": spec}
    assert not election.step(election.a, 14.9)
    assert not election.step(election.a, 0.2)
    assert election.step(election.a)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(0, 16, max(1, stride() // 3)))
def test_whatever_happens_to_any_one_request_there_is_one_leader_in_the_end_and_never_two(
    election: Election, number: int, fault: str
) -> None:
    election.server.faults_at[number] = fault
    for _ in range(3):  # a leads, b looks on
        election.step(election.a, 1)
        election.step(election.b, 1)
    for _ in range(9):  # a is gone, b takes over
        election.step(election.b, 2)
    election.step(election.a)  # a comes back
    election.step(election.b)
    election.b.release()
    election.check()
    assert not election.b.is_leader()
    for _ in range(9):
        election.step(election.a, 2)
    assert election.a.is_leader()


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "release a", "release b", "delete"]),
        st.sampled_from([0, 0.5, 2, 4, 5, 9.9, 10, 14.9, 15, 20]),
        st.sampled_from([None, None, *FAULTS]),
    ),
    max_size=25,
)


@settings(examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_no_history_has_two_leaders(steps: list[tuple[str, float, str | None]]) -> None:
    election = Election()
    try:
        for action, seconds, fault in steps:
            election.server.fault = fault
            match action.split():
                case ["release", name]:
                    getattr(election, name).release()
                case ["delete"]:
                    # Only a candidate that has seen a lease of its holder's can know that that one may still lead.
                    election.server.fault = None
                    election.step(election.a)
                    election.step(election.b)
                    election.server.lease = None
                case [name]:
                    getattr(election, name).stand()
            election.check()
            election.clock.advance(seconds)
            election.check()
    finally:
        election.server.close()


def test_run_starts_and_stops_the_leaders_work_and_gives_the_lease_up_last(election: Election, start: Start) -> None:
    happened: list[str] = []
    stop = start(
        lambda stop: election.a.run(
            stop,
            lambda: happened.append(f"started, holder {election.server.holder}"),
            lambda: happened.append(f"stopped, holder {election.server.holder}"),
        )
    )
    eventually(lambda: happened == ["started, holder a"])
    stop.set()
    eventually(lambda: election.server.holder == "")
    assert happened == ["started, holder a", "stopped, holder a"]


def test_run_stops_the_leaders_work_at_the_deadline_and_stands_again(election: Election, start: Start) -> None:
    happened: list[str] = []

    def time_passes(until: Callable[[], bool]) -> Callable[[], bool]:
        def look() -> bool:
            election.clock.advance(0.25)
            return until()

        return look

    start(lambda stop: election.a.run(stop, lambda: happened.append("started"), lambda: happened.append("stopped")))
    eventually(lambda: happened == ["started"])
    election.server.fault = "failed"
    eventually(time_passes(lambda: happened == ["started", "stopped"]))
    election.server.fault = None
    eventually(time_passes(lambda: happened == ["started", "stopped", "started"]))


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 10, 9), (15, 10, 0)])
def test_times_that_are_not_safe_are_refused(times: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        LeaseTimes(*times)
