"""One replacement from its choice to its end, and what each event makes of it at any moment."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cluster_state.registry import Registry, decode_registry, encode_registry, with_replacement
from manager.autoscaler.cluster_state.replacement import Launch, ReplacedNode, Replacement, ReplacementPhase
from manager.autoscaler.disruption.replacing import (
    DRAIN_SECONDS,
    LOOK_SECONDS,
    LaunchNodes,
    LookAgain,
    LookedAgain,
    RemoveNodes,
    ReplacementAbandoned,
    ReplacementChosen,
    ReplacementEnded,
    ReplacementEvent,
    ReplacementOutcome,
    ReplacementSeen,
    step,
)
from tests.support.properties import examples
from tests.unit.manager.objects import NOW

OLD = (ReplacedNode("a", "uid-a", "dear"), ReplacedNode("b", "uid-b", "dear"))
CHOSEN = Replacement(OLD, (Launch("cheap", 1, 2), Launch("tiny", 0, 1)), 0.5, NOW, NOW + 900)
THERE = frozenset({"uid-a", "uid-b", "uid-of-another"})
ALL_READY = {"cheap": ("n1", "n2"), "tiny": ("n3",)}
READY = replace(CHOSEN, phase=ReplacementPhase.READY, deadline=NOW + LOOK_SECONDS)
DRAINING = replace(CHOSEN, phase=ReplacementPhase.DRAINING, deadline=NOW + DRAIN_SECONDS, left=2)


def seen(now: float = NOW, **more: Any) -> ReplacementSeen:
    given: dict[str, Any] = {"present": THERE, "ready": ALL_READY, **more}
    return ReplacementSeen(now, **given)


def outcome(state: Replacement | None, what: ReplacementEvent) -> tuple[ReplacementOutcome, str]:
    after, instructions = step(state, what)
    assert after is None
    (ended,) = instructions
    assert isinstance(ended, ReplacementEnded)
    return ended.outcome, ended.reason


def test_it_begins_with_its_launches() -> None:
    assert step(None, ReplacementChosen(CHOSEN)) == (CHOSEN, (LaunchNodes(CHOSEN.launches),))
    assert step(CHOSEN, ReplacementChosen(replace(CHOSEN, started_at=NOW + 1))) == (CHOSEN, ())


def test_no_old_node_is_looked_at_before_every_new_one_is_ready() -> None:
    for ready in ({}, {"cheap": ("n1", "n2")}, {"cheap": ("n1",), "tiny": ("n3",)}):
        assert step(CHOSEN, seen(ready=ready)) == (CHOSEN, ())
    assert step(CHOSEN, seen()) == (READY, (LookAgain(OLD),))


def test_old_nodes_go_once_the_second_look_allows_it() -> None:
    assert step(READY, LookedAgain(NOW, ("a",))) == (DRAINING, (RemoveNodes(("a",)),))
    assert step(DRAINING, seen(going=frozenset({"a"}))) == (DRAINING, (LookAgain(OLD[1:]),))
    after, _ = step(DRAINING, seen(NOW + 60, present=frozenset({"uid-b"})))
    assert after == replace(DRAINING, left=1, deadline=NOW + 1860), "each departure gives the next one time"
    assert outcome(DRAINING, seen(present=frozenset())) == (ReplacementOutcome.DONE, "")


def test_only_its_own_nodes_are_removed() -> None:
    assert step(READY, LookedAgain(NOW, ("stranger",))) == (READY, ())
    assert step(READY, LookedAgain(NOW, ("stranger", "b")))[1] == (RemoveNodes(("b",)),)


def test_another_node_of_the_same_name_is_none_of_its() -> None:
    reason = "the nodes to be replaced were deleted"
    assert outcome(CHOSEN, seen(present=frozenset({"uid-new-a"}))) == (ReplacementOutcome.GIVEN_UP, reason)


def test_a_launch_that_fails_gives_up_with_its_reason() -> None:
    what = seen(ready={"cheap": ("n1", "n2")}, failures={"tiny": "group tiny failed: none left"})
    assert outcome(CHOSEN, what) == (ReplacementOutcome.GIVEN_UP, "group tiny failed: none left")
    late = seen(failures={"cheap": "group cheap failed later"})
    assert step(CHOSEN, late)[1] == (LookAgain(OLD),), "its nodes are here"


def test_new_nodes_that_take_too_long_are_given_up() -> None:
    assert step(CHOSEN, seen(NOW + 900, ready={})) == (CHOSEN, ())
    assert outcome(CHOSEN, seen(NOW + 901, ready={})) == (
        ReplacementOutcome.GIVEN_UP,
        "not all new nodes of cheap were ready after 15m1s",
    )


def test_a_second_look_that_goes_on_refusing_gives_up_and_touches_nothing() -> None:
    assert step(READY, LookedAgain(NOW + LOOK_SECONDS, refusal="a budget")) == (READY, ())
    assert outcome(READY, LookedAgain(NOW + LOOK_SECONDS + 1, refusal="a budget")) == (
        ReplacementOutcome.GIVEN_UP,
        "a budget",
    )


def test_old_nodes_that_do_not_go_stay_in_the_end() -> None:
    partly, late = ReplacementOutcome.PARTLY_DONE, NOW + DRAIN_SECONDS + 1
    assert outcome(DRAINING, LookedAgain(late, refusal="a budget")) == (partly, "a budget")
    assert outcome(DRAINING, LookedAgain(late, ("b",))) == (partly, "its nodes were not deleted in time")
    assert outcome(DRAINING, ReplacementAbandoned("off")) == (partly, "off")
    assert outcome(CHOSEN, ReplacementAbandoned("off")) == (ReplacementOutcome.GIVEN_UP, "off")


def test_its_end_is_told_in_a_sentence() -> None:
    (ended,) = step(CHOSEN, ReplacementAbandoned("consolidation is off"))[1]
    assert str(ended) == "the replacement of a, b by 2 of cheap, 1 of tiny is given up: consolidation is off"


_NODES = st.lists(st.sampled_from(["a", "b", "stranger"]), max_size=3, unique=True).map(tuple)
_UIDS = st.frozensets(st.sampled_from(["uid-a", "uid-b", "uid-other"]))
_READY = st.dictionaries(st.sampled_from(["cheap", "tiny"]), st.sampled_from([(), ("n1",), ("n1", "n2")]))
_FAILURES = st.dictionaries(st.sampled_from(["cheap", "tiny"]), st.just("it failed"), max_size=1)
_PASSING = st.floats(0, 700)


@st.composite
def _events(draw: st.DrawFn) -> list[ReplacementEvent]:
    now, found = NOW, list[ReplacementEvent]()
    for _ in range(draw(st.integers(1, 25))):
        now += draw(_PASSING)
        if draw(st.booleans()):
            going = draw(st.frozensets(st.sampled_from(["a", "b"])))
            found.append(ReplacementSeen(now, draw(_UIDS), going, draw(_READY), draw(_FAILURES)))
        else:
            found.append(LookedAgain(now, draw(_NODES), draw(st.sampled_from(["", "a budget"]))))
    return found


@examples(120)
@given(_events())
def test_whatever_happens_nodes_go_only_after_all_new_ones_were_ready(events: list[ReplacementEvent]) -> None:
    state: Replacement | None
    state, _ = step(None, ReplacementChosen(CHOSEN))
    was_ready = False
    for what in events:
        before = state
        # What is in the books is all that it goes on from.
        stored = decode_registry(encode_registry(with_replacement(Registry(), state)), "books", NOW + 1e6)
        assert stored.replacing == before
        state, instructions = step(stored.replacing, what)
        if isinstance(what, ReplacementSeen) and before is not None:
            was_ready = was_ready or all(len(what.ready.get(each.group, ())) >= each.nodes for each in CHOSEN.launches)
        for each in instructions:
            if isinstance(each, RemoveNodes):
                assert was_ready
                assert set(each.nodes) <= {"a", "b"}
            if isinstance(each, ReplacementEnded) and each.outcome is ReplacementOutcome.GIVEN_UP:
                assert before is not None
                assert before.phase is not ReplacementPhase.DRAINING
        if before is None:
            assert (state, instructions) == (None, ()), "what is over stays over"
    event("over" if state is None else state.phase.value)


@pytest.mark.parametrize("state", [CHOSEN, READY, DRAINING], ids=lambda state: state.phase.value)
@pytest.mark.parametrize("refusal", ["", "a budget"])
def test_every_phase_has_an_end(state: Replacement, refusal: str) -> None:
    """Nothing ever happens but the passing of time, and looks that let no node go."""
    now, left = NOW, state
    for _ in range(100):
        now += 60
        after, instructions = step(left, seen(now, ready={} if state is CHOSEN else ALL_READY))
        for each in instructions:
            if isinstance(each, LookAgain) and after is not None:
                after, _ = step(after, LookedAgain(now, refusal=refusal))
        if after is None:
            return
        left = after
    pytest.fail("it never ended")
