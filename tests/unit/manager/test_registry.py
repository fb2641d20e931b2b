"""What the autoscaler remembers over restarts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cluster_state.registry import (
    Registry,
    Shortage,
    active_backoff,
    add_created_groups,
    add_request,
    back_off,
    decode_registry,
    encode_registry,
    fail_request,
    lower_request,
    shift_times,
    withdraw_request,
)
from manager.autoscaler.cluster_state.state import GroupBackoff, Increase, ScaleUpRequest
from manager.autoscaler.settings.estimates import BackoffTimes
from shared.errors import InvalidInput
from tests.unit.manager.objects import NOW

TIMES = BackoffTimes()
THREE = Increase("pool", 2, 5, 10)

_names = st.text(min_size=1, max_size=12)
_past = st.floats(0, NOW)


@st.composite
def _requests(draw: st.DrawFn, group: str) -> ScaleUpRequest:
    started, seconds = draw(_past), draw(st.floats(0, 7200))
    return ScaleUpRequest(group, draw(st.integers(1, 5000)), started, started + seconds, draw(st.integers(0, 5000)))


@st.composite
def _backoffs(draw: st.DrawFn) -> GroupBackoff:
    failed, seconds = draw(_past), draw(st.floats(0, 7200))
    return GroupBackoff(draw(st.text()), failed, seconds, failed + seconds, draw(st.text()), draw(st.booleans()))


@st.composite
def all_registries(draw: st.DrawFn) -> Registry:
    groups = draw(st.lists(_names, max_size=4, unique=True))
    shortages = st.builds(Shortage, _past, st.integers(1, 5000), st.none() | _past)
    return Registry(
        requests={group: draw(_requests(group)) for group in groups},
        backoffs=draw(st.dictionaries(_names, _backoffs(), max_size=4)),
        unregistered=draw(st.dictionaries(_names, st.dictionaries(_names, _past, max_size=4), max_size=3)),
        failed=draw(st.dictionaries(_names, st.lists(_names, max_size=3).map(tuple), max_size=3)),
        short=draw(st.dictionaries(_names, shortages, max_size=3)),
        made_as=draw(st.dictionaries(_names, _names, max_size=3)),
    )


@given(all_registries())
def test_the_registry_survives_a_restart(kept: Registry) -> None:
    text = encode_registry(kept)
    assert decode_registry(text, "registry", NOW) == kept
    assert encode_registry(decode_registry(text, "registry", NOW)) == text


@given(all_registries(), st.floats(-1e6, 1e6))
def test_after_a_jump_of_the_clock_all_durations_are_as_before(kept: Registry, seconds: float) -> None:
    moved = shift_times(kept, seconds)
    later = NOW + seconds
    for group, request in kept.requests.items():
        after = moved.requests[group]
        if request.started_at + seconds >= 0:
            assert later - after.started_at == pytest.approx(NOW - request.started_at, abs=0.01)
            assert after.deadline - later == pytest.approx(request.deadline - NOW, abs=0.01)
    for group, each in kept.backoffs.items():
        if each.failed_at + seconds >= 0:
            assert moved.backoffs[group].until - later == pytest.approx(each.until - NOW, abs=0.01)
    decode_registry(encode_registry(moved), "registry", later)


@given(st.text() | st.binary(max_size=64).map(lambda raw: raw.decode("latin-1")))
def test_garbage_is_refused_by_its_source(text: str) -> None:
    with pytest.raises(InvalidInput, match="the registry"):
        decode_registry(text, "the registry", NOW)


@given(all_registries(), st.data())
def test_a_registry_cut_off_anywhere_is_refused(kept: Registry, data: st.DataObject) -> None:
    text = encode_registry(kept)
    with pytest.raises(InvalidInput):
        decode_registry(text[: data.draw(st.integers(0, len(text) - 1))], "registry", NOW)


REQUEST = {"group": "a", "nodes": 1, "started_at": 1.0, "deadline": 2.0, "to_size": 1}
BACKOFF = {"reason": "", "failed_at": 1.0, "seconds": 1.0, "until": 2.0, "code": "", "ended": False}
SHORTAGE = {"since": 1.0, "nodes": 1}


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"version": 2}, "version"),
        ({"request": {}}, "registry"),
        ([], "registry"),
        ({"short": {"a": {"nodes": 1}}}, "registry"),
        ({"requests": {"b": REQUEST}}, "requests[b].group"),
        ({"requests": {"a": {**REQUEST, "nodes": 0}}}, "requests[a].nodes"),
        ({"requests": {"a": {**REQUEST, "started_at": 9e9}}}, "requests[a].started_at"),
        ({"requests": {"a": {**REQUEST, "deadline": 0.5}}}, "requests[a].deadline"),
        ({"requests": {"a": {**REQUEST, "deadline": 9e9}}}, "requests[a].deadline"),
        ({"requests": {"a": {**REQUEST, "to_size": -1}}}, "requests[a].to_size"),
        ({"backoffs": {"a": {**BACKOFF, "failed_at": 9e9}}}, "backoffs[a].failed_at"),
        ({"backoffs": {"a": {**BACKOFF, "until": 9e9}}}, "backoffs[a].until"),
        ({"backoffs": {"a": {**BACKOFF, "seconds": -1.0}}}, "backoffs[a].seconds"),
        ({"unregistered": {"a": {"i-1": -1.0}}}, "unregistered[a][i-1]"),
        ({"short": {"a": {**SHORTAGE, "since": 9e9}}}, "short[a].since"),
        ({"short": {"a": {**SHORTAGE, "nodes": 0}}}, "short[a].nodes"),
        ({"short": {"a": {**SHORTAGE, "corrected_at": 9e9}}}, "short[a].corrected_at"),
    ],
)
def test_a_registry_that_cannot_be_is_refused_by_field(content: object, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_registry(json.dumps(content), "registry", NOW)
    assert refused.value.field == field


def test_an_increase_joins_the_one_that_is_under_way_and_renews_its_deadline() -> None:
    once = add_request(Registry(), THREE, NOW, 900)
    assert once.requests["pool"] == ScaleUpRequest("pool", 3, NOW, NOW + 900, 5)
    twice = add_request(once, Increase("pool", 5, 6, 10), NOW + 60, 900)
    assert twice.requests["pool"] == ScaleUpRequest("pool", 4, NOW + 60, NOW + 960, 6)
    assert once.requests["pool"].nodes == 3


def test_nodes_that_go_meanwhile_lower_what_an_increase_leads_to() -> None:
    under_way = add_request(Registry(), THREE, NOW, 900)
    after = lower_request(under_way, "pool", 2)
    assert after.requests["pool"] == ScaleUpRequest("pool", 3, NOW, NOW + 900, 3)
    assert lower_request(under_way, "other", 2) == under_way


def test_what_the_cloud_refuses_is_not_under_way_and_backs_its_group_off() -> None:
    under_way = add_request(Registry(), Increase("pool", 0, 2, 10), NOW, 900)
    refused = fail_request(add_request(under_way, THREE, NOW, 900), THREE, "quota", NOW, TIMES)
    assert (refused.requests["pool"].nodes, refused.requests["pool"].to_size) == (2, 2)
    assert refused.backoffs["pool"] == GroupBackoff("quota", NOW, 300, NOW + 300, "cloudProviderError")
    assert active_backoff(refused, "pool", NOW + 300) == refused.backoffs["pool"]
    assert active_backoff(refused, "pool", NOW + 301) is None


def test_a_created_group_fails_together_with_the_candidate_it_was_made_of() -> None:
    made = add_created_groups(Registry(), ["pool", "pool-1"], "candidate")
    failed = fail_request(add_request(made, THREE, NOW, 900), THREE, "none left", NOW, TIMES)
    assert failed.backoffs["candidate"] == failed.backoffs["pool"]
    assert failed.backoffs.keys() == {"candidate", "pool"}


def test_however_much_a_cloud_says_the_registry_stays_small() -> None:
    told = back_off(Registry(), "pool", "x" * 2_000_000, NOW, TIMES, code="y" * 2_000_000)
    assert len(encode_registry(told)) < 2000


def test_what_the_cloud_may_have_done_stays_under_way() -> None:
    doubtful = fail_request(add_request(Registry(), THREE, NOW, 900), THREE, "no answer", NOW, TIMES, in_doubt=True)
    assert doubtful.requests["pool"].nodes == 3
    assert doubtful.backoffs["pool"].reason == "no answer"


@given(all_registries(), st.integers(1, 50), st.integers(0, 50))
def test_an_increase_that_was_never_asked_for_leaves_no_trace_of_its_nodes(
    kept: Registry, nodes: int, size: int
) -> None:
    increase = Increase("a group", size, size + nodes, 100)
    before = kept.requests.get("a group")
    after = withdraw_request(add_request(kept, increase, NOW, 900), increase).requests.get("a group")
    assert (after.nodes if after else 0) == (before.nodes if before else 0)
