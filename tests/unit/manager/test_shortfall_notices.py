"""A shortfall is said on the Node once, for as long as it lasts, and ends pods' stay only after its time."""

from typing import Any

import pytest

from manager.nodeside.eviction.condition import Notice
from manager.nodeside.eviction.tracker import CALM_SECONDS, ECHO_SECONDS, MESSAGE_SECONDS, MOVED_SECONDS, Tracker
from manager.nodeside.noderesource import explain
from shared import names
from shared.api.colocation import NodeStrategy
from shared.api.core import Condition, Node, NodeStatus
from shared.api.meta import ObjectMeta
from shared.clock import ManualClock
from tests.unit.manager.objects import NOW, enabled
from tests.unit.manager.shortfalls import decision, mid_pod, tracker

POD = mid_pod("a")
SHORT, ENOUGH = decision(500), decision(1000)
EVICTING = enabled(eviction_after_seconds=60)


def node(*conditions: Condition) -> Node:
    kubelets = Condition("Ready", "True")
    return Node(
        metadata=ObjectMeta(name="n1", resource_version="7"), status=NodeStatus(conditions=(kubelets, *conditions))
    )


def written(notice: Notice) -> dict[str, Any]:
    """The one condition of a patch."""
    patch: Any = notice.patch(NOW)
    assert patch["metadata"] == {"resourceVersion": "7"}
    (condition,) = patch["status"]["conditions"]
    return dict(condition)


def said(status: str, message: str = "", since: str | None = None) -> Condition:
    reason = {"True": "OfferShrunk", "False": "OfferSuffices", "Unknown": "NodeMetricAbnormal"}[status]
    return Condition(names.CONDITION_MID_SHORTFALL, status, reason, message, since)


@pytest.fixture
def tracked() -> tuple[Tracker, ManualClock]:
    return tracker()


def test_a_shortfall_is_said_once_and_its_end_when_it_has_lasted(tracked: tuple[Tracker, ManualClock]) -> None:
    follower, clock = tracked
    notice = follower.track(node(), EVICTING, SHORT, [POD])
    assert notice is not None
    condition = written(notice)
    assert (condition["type"], condition["status"]) == (names.CONDITION_MID_SHORTFALL, "True")
    assert condition["message"].endswith(
        "in eviction order: default/a (priority 7500); the Node keeps showing what they request, and nothing more is "
        "lent; eviction begins after 60 s"
    )
    assert notice.turned == {names.CONDITION_MID_SHORTFALL}
    said_first = notice.said[names.CONDITION_MID_SHORTFALL]
    assert said_first.event(names.CONDITION_MID_SHORTFALL)[:2] == ("Warning", "MidResourceShort")
    follower.record_notice(notice)
    assert follower.track(node(), EVICTING, SHORT, [POD]) is None  # the watch has not shown it yet

    on_node = node(said("True", condition["message"]))
    clock.advance(ECHO_SECONDS)
    assert follower.track(on_node, EVICTING, ENOUGH, [POD]) is None
    clock.advance(CALM_SECONDS - 1)
    assert follower.track(on_node, EVICTING, SHORT, [POD]) is None  # it was but a pause
    assert follower.track(on_node, EVICTING, ENOUGH, [POD]) is None
    assert follower.due() == set()
    clock.advance(CALM_SECONDS)
    assert follower.due() == {"n1"}
    ended = follower.track(on_node, EVICTING, ENOUGH, [POD])
    assert ended is not None
    assert written(ended)["status"] == "False"
    follower.record_notice(ended)
    assert follower.track(node(said("False")), EVICTING, ENOUGH, [POD]) is None
    assert follower.due() == set()


@pytest.mark.parametrize(
    ("there_is", "missing", "seconds"), [(460, "540m", MESSAGE_SECONDS), (400, "600m", MOVED_SECONDS)]
)
def test_numbers_that_change_wait_and_do_not_turn_anything(
    tracked: tuple[Tracker, ManualClock], there_is: int, missing: str, seconds: float
) -> None:
    follower, clock = tracked
    first = follower.track(node(), EVICTING, SHORT, [POD])
    assert first is not None
    follower.record_notice(first)
    on_node = node(said("True", written(first)["message"], "2023-11-14T22:00:00Z"))
    clock.advance(seconds - 1)
    assert follower.track(on_node, EVICTING, decision(there_is), [POD]) is None
    clock.advance(1)
    later = follower.track(on_node, EVICTING, decision(there_is), [POD])
    assert later is not None
    assert later.turned == frozenset()
    assert written(later)["lastTransitionTime"] == "2023-11-14T22:00:00Z"
    assert f"cpu {missing} is missing" in written(later)["message"]


def test_a_new_leader_ends_what_an_old_one_said(tracked: tuple[Tracker, ManualClock]) -> None:
    follower, clock = tracked
    assert follower.track(node(said("True")), EVICTING, ENOUGH, []) is None
    clock.advance(CALM_SECONDS)
    ended = follower.track(node(said("True")), EVICTING, ENOUGH, [])
    assert ended is not None
    assert ended.turned == {names.CONDITION_MID_SHORTFALL}


def test_a_node_that_never_was_short_is_left_alone(tracked: tuple[Tracker, ManualClock]) -> None:
    follower, clock = tracked
    for _ in range(3):
        assert follower.track(node(), EVICTING, ENOUGH, [POD]) is None
        clock.advance(CALM_SECONDS)
    assert follower.due() == set()


def test_what_is_undecided_says_nothing_new(tracked: tuple[Tracker, ManualClock]) -> None:
    follower, clock = tracked
    undecided = decision(None, bound=explain.UNDECIDED, hold=True)
    follower.track(node(), EVICTING, SHORT, [POD])
    clock.advance(CALM_SECONDS)
    assert follower.track(node(said("True")), None, undecided, [POD]) is None
    assert follower.shortfalls_of("n1") == {}


def test_eviction_is_due_after_its_time_without_a_break(tracked: tuple[Tracker, ManualClock]) -> None:
    follower, clock = tracked

    def looked(strategy: NodeStrategy = EVICTING, *, short: bool = True) -> list[str]:
        follower.track(node(), strategy, SHORT if short else ENOUGH, [POD])
        return [each.node for each in follower.overdue()]

    assert looked() == []
    clock.advance(59)
    assert looked() == []
    clock.advance(1)
    assert looked() == ["n1"]
    assert looked(short=False) == []
    assert looked() == []
    clock.advance(60)
    assert looked(enabled(eviction_after_seconds="off")) == []
    assert looked(enabled()) == []
    assert looked() == ["n1"]
    follower.restart()
    assert looked() == []
    clock.advance(60)
    assert looked() == ["n1"]
    follower.forget("n1")
    assert follower.all() == []


@pytest.mark.parametrize(
    ("bound", "status", "reason"),
    [
        (explain.STALE, "Unknown", "NodeMetricAbnormal"),
        (explain.DISABLED, "True", "ColocationDisabled"),
    ],
)
def test_what_is_taken_off_the_node_for_other_reasons_is_said_and_evicts_nobody(
    tracked: tuple[Tracker, ManualClock], bound: str, status: str, reason: str
) -> None:
    follower, clock = tracked
    withdrawn = decision(None, bound=bound)
    notice = follower.track(node(), EVICTING, withdrawn, [POD])
    assert notice is not None
    assert (written(notice)["status"], written(notice)["reason"]) == (status, reason)
    assert written(notice)["message"].endswith("none is evicted")
    clock.advance(3600)
    follower.track(node(), EVICTING, withdrawn, [POD])
    assert follower.overdue() == []
