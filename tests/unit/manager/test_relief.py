"""Under pressure pods of Batch and Mid go in order, as few as it takes, and only on fresh evidence."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.eviction import relief
from manager.nodeside.eviction.relief import COOL_DOWN_SECONDS, STALE_SECONDS, Last, Relief
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.pressure import NodePressure, PodPressure
from manager.pods import PodRecord
from shared.api.nodemetric_spec import ResourceThresholds
from shared.names import CPU, MEMORY, PriorityClass, Tier
from shared.quantity import Resources
from tests.unit.manager.objects import NOW, node_report
from tests.unit.manager.shortfalls import GIB, mid_pod

EVICTS = ResourceThresholds(
    enable=True, evict_enabled=True, cpu_satisfaction_lower_percent=40, cpu_satisfaction_upper_percent=80
)
CAPACITY = Resources(16_000, 100 * GIB)
UPDATED = "2023-11-14T22:13:20Z"


def batch(of: PodRecord) -> PodRecord:
    return msgspec.structs.replace(of, held_tier=Tier.BATCH, priority_class=PriorityClass.BATCH, priority=5500)


def report(
    used: dict[PodRecord, Resources] | None = None,
    *,
    resources: tuple[str, ...] = (MEMORY,),
    memory: int = 80 * GIB,
    cpu: tuple[int, int, int] = (10_000, 3_000, 3_000),
    at: float | None = NOW,
    also: dict[str, PodPressure] | None = None,
) -> NodeReport:
    pods = {pod.uid: PodPressure(usage, pod.held) for pod, usage in (used or {}).items()}
    pressed = NodePressure(resources, CAPACITY, Resources(15_000, memory), *cpu, pods | (also or {}))
    return node_report(update_time=at, updated=UPDATED, pressure=pressed)


def memory_of(*pods: PodRecord, gib: float) -> dict[PodRecord, Resources]:
    return {pod: Resources(500, int(gib * GIB)) for pod in pods}


def going(found: Relief) -> list[str]:
    return [each.pod.key.removeprefix("default/") for each in found.evictions]


def planned(of: NodeReport, *pods: PodRecord, last: dict[str, Last] | None = None, now: float = NOW) -> Relief:
    return relief.plan(of, pods, EVICTS, now, last=last)


def test_memory_is_released_down_to_the_lower_bound_and_everything_is_told() -> None:
    pods = [batch(mid_pod(name, memory_bytes=8 * GIB)) for name in ("a", "b", "c")]
    found = planned(report(memory_of(*pods, gib=6)), *pods)
    assert len(found.evictions) == 2  # 80 of 100 GiB: twelve to release, six each
    assert found.evictions[0].why == (
        "memory used 80.00 GiB is 80 % of capacity 100.00 GiB, memoryEvictThresholdPercent is 70: 12.00 GiB to release "
        "down to 68 %; this batch pod uses 6.00 GiB of 8.00 GiB requested"
    )
    assert found.reason.endswith("in eviction order: default/a, default/b")


@pytest.mark.parametrize(("memory", "count"), [(70 * GIB - 1, 0), (70 * GIB, 1)])
def test_the_threshold_itself_is_pressure(memory: int, count: int) -> None:
    pod = batch(mid_pod("a", memory_bytes=8 * GIB))
    assert len(planned(report(memory_of(pod, gib=6), memory=memory), pod).evictions) == count


@pytest.mark.parametrize(("memory", "goes"), [(90 * GIB - 1, []), (90 * GIB, ["a"]), (95 * GIB, ["a", "b"])])
def test_mid_pods_that_use_no_more_than_they_hold_go_later_and_down_to_a_bound_of_their_own(
    memory: int, goes: list[str]
) -> None:
    pods = [mid_pod(name, memory_bytes=8 * GIB) for name in ("a", "b", "c")]
    found = planned(report(memory_of(*pods, gib=6), memory=memory), *pods)
    assert going(found) == goes  # at 90 % two GiB are beyond 88 %, at 95 % seven, and each uses six
    if goes:
        assert found.evictions[0].why.endswith("6.00 GiB of 8.00 GiB requested, and such pods are evicted from 90 % on")
    else:
        assert found.reason.endswith(
            "no pod may be evicted, and Mid pods that use no more than they hold stay below 90 %"
        )


def test_a_higher_threshold_of_the_policy_holds_for_them_as_well() -> None:
    pod, high = mid_pod("a", memory_bytes=8 * GIB), msgspec.structs.replace(EVICTS, memory_evict_threshold_percent=95)
    for memory, goes in ((94, []), (95, ["a"])):
        assert going(relief.plan(report(memory_of(pod, gib=6), memory=memory * GIB), [pod], high, NOW)) == goes


def test_those_over_what_they_hold_go_first_and_batch_goes_before_mid() -> None:
    within_batch, over_mid = batch(mid_pod("b", memory_bytes=8 * GIB)), mid_pod("m", memory_bytes=GIB)
    over_batch, within_mid = batch(mid_pod("o", memory_bytes=GIB)), mid_pod("w", memory_bytes=8 * GIB, priority=7000)
    pods = (within_mid, within_batch, over_mid, over_batch)
    found = planned(report(memory_of(*pods, gib=2), memory=95 * GIB), *pods)
    assert going(found) == ["o", "m", "b", "w"]


def test_then_priorities_decide_and_then_what_is_used() -> None:
    low, high = mid_pod("low", priority=7100, memory_bytes=9 * GIB), mid_pod("high", memory_bytes=9 * GIB)
    much, little = (mid_pod(name, priority=7300, memory_bytes=9 * GIB) for name in ("much", "little"))
    used = memory_of(low, high, little, gib=1) | memory_of(much, gib=2)
    assert going(planned(report(used, memory=95 * GIB), high, little, much, low)) == ["low", "much", "little", "high"]


def test_cpu_is_released_by_what_is_requested_up_to_the_upper_bound() -> None:
    pods = [batch(mid_pod(name, cpu_milli=2000)) for name in "abcde"]
    used = {pod: Resources(600, GIB) for pod in pods}
    pressed = report(used, resources=(CPU,))
    found = planned(pressed, *pods)
    assert going(found) == ["a", "b", "c"]  # they get 3 of 10 cores, 8 would be 80 %: 5 cores to release
    assert "30 % is what they can get" in found.reason
    for limits in ((10_000, 3_000, 4_001), (10_000, 2_699, 3_000)):  # satisfied enough; or in no want of more
        assert planned(report(used, resources=(CPU,), cpu=limits), *pods).evictions == ()


def test_without_bounds_of_satisfaction_nobody_goes_for_cpu() -> None:
    pod = batch(mid_pod("a"))
    pressed = report({pod: Resources(600, GIB)}, resources=(CPU,))
    assert relief.plan(pressed, [pod], ResourceThresholds(enable=True, evict_enabled=True), NOW).evictions == ()


def test_what_goes_for_memory_counts_for_cpu_as_well() -> None:
    pods = [batch(mid_pod(name, cpu_milli=2000)) for name in "abcde"]
    used = {pod: Resources(600, 6 * GIB) for pod in pods}
    found = planned(report(used, resources=(CPU, MEMORY)), *pods)
    assert [(each.pod.key[-1], each.resource) for each in found.evictions] == [("a", MEMORY), ("b", MEMORY), ("c", CPU)]


def test_pods_that_leave_or_are_gone_count_as_released() -> None:
    leaving = batch(mid_pod("l", deletion_timestamp=UPDATED))
    pods = [batch(mid_pod(name, memory_bytes=8 * GIB)) for name in "ab"]
    gone = {"uid-gone": PodPressure(Resources(0, 4 * GIB), Resources())}
    used = memory_of(leaving, *pods, gib=6)
    assert going(planned(report(used, also=gone), leaving, *pods)) == ["a"]
    assert going(planned(report(used), *pods)) == ["a"]
    enough = planned(report(used | memory_of(leaving, gib=12)), leaving, *pods)
    assert enough.evictions == ()
    assert enough.reason.endswith("that much is leaving already")


def test_a_successor_of_the_same_name_is_not_the_pod_that_was_reported() -> None:
    old = mid_pod("a", memory_bytes=GIB)
    new = msgspec.structs.replace(old, uid="another")
    found = planned(report(memory_of(old, gib=6)), new)
    assert (found.evictions, found.needs[0].released) == ((), 6 * GIB)


@pytest.mark.parametrize("at", [NOW - STALE_SECONDS - 1, NOW + 61, None])
def test_evidence_that_is_old_ahead_or_of_no_time_evicts_nobody(at: float | None) -> None:
    pod = mid_pod("a")
    found = planned(report(memory_of(pod, gib=20), at=at), pod)
    assert found.evictions == ()
    assert "which is too old" in found.reason


def test_another_report_counts_only_when_the_last_eviction_has_cooled_down() -> None:
    pod = mid_pod("a")
    pressed = report(memory_of(pod, gib=20))
    cool = COOL_DOWN_SECONDS[MEMORY]
    assert going(planned(pressed, pod, last={MEMORY: Last(NOW - 1, UPDATED)})) == ["a"]  # of the same report
    assert planned(pressed, pod, last={MEMORY: Last(NOW - cool + 1, "before")}).evictions == ()
    assert going(planned(pressed, pod, last={MEMORY: Last(NOW - cool, "before")})) == ["a"]
    assert going(planned(pressed, pod, last={CPU: Last(NOW, "before")})) == ["a"]  # each has its own


def test_without_leave_of_the_policy_nobody_goes() -> None:
    pod = mid_pod("a")
    for thresholds in (ResourceThresholds(), ResourceThresholds(enable=True), ResourceThresholds(evict_enabled=True)):
        assert relief.plan(report(memory_of(pod, gib=20)), [pod], thresholds, NOW).evictions == ()


def test_who_may_not_be_evicted_or_is_spared_stays() -> None:
    forbidden = mid_pod("f", labels={"koordinator.sh/eviction-enabled": "false"})
    spared, done = mid_pod("s"), mid_pod("d", phase="Succeeded")
    pods = (forbidden, spared, done)
    found = relief.plan(report(memory_of(*pods, gib=5)), pods, EVICTS, NOW, spared={spared.uid})
    assert found.evictions == ()


@st.composite
def situations(draw: st.DrawFn) -> tuple[NodeReport, list[PodRecord]]:
    pods, used = [], {}
    for number in range(draw(st.integers(0, 8))):
        pod = mid_pod(
            f"p{number}",
            cpu_milli=draw(st.integers(0, 4000)),
            memory_bytes=draw(st.integers(1, 10)) * GIB,
            priority=draw(st.integers(7000, 7999)),
        )
        kind = draw(st.sampled_from(list(PriorityClass)))
        tier = draw(st.sampled_from([Tier.MID, Tier.BATCH, None]))
        pod = msgspec.structs.replace(pod, priority_class=kind, held_tier=tier)
        pods.append(pod)
        used[pod] = Resources(draw(st.integers(0, 4000)), draw(st.integers(0, 20)) * GIB)
    request = draw(st.integers(0, 16_000))
    cpu = (request, draw(st.integers(0, 16_000)), draw(st.integers(0, 16_000)))
    resources = draw(st.sampled_from([(MEMORY,), (CPU,), (MEMORY, CPU), ()]))
    return report(used, resources=resources, memory=draw(st.integers(0, 100)) * GIB, cpu=cpu), pods


@given(situations())
def test_nobody_else_goes_no_one_too_many_and_nobody_out_of_turn(situation: tuple[NodeReport, list[PodRecord]]) -> None:
    of, pods = situation
    found = planned(of, *pods)
    pressure = of.pressure
    assert pressure is not None
    assert len({each.pod.uid for each in found.evictions}) == len(found.evictions)
    gone: set[str] = set()
    for need in found.needs:
        mine = [each for each in found.evictions if each.resource == need.resource]
        before = sum(
            pressure.pods[uid].usage.memory_bytes if need.resource == MEMORY else pressure.pods[uid].held.cpu_milli
            for uid in gone
        )
        released = [each.releases for each in mine]
        if mine:
            assert before + sum(released[:-1]) < need.remaining
        may_go = [pod for pod in relief.candidates(pods) if pod.uid not in gone]
        turns = [pod.uid for pod in relief.in_order(may_go, need.resource, pressure.pods)]
        wins = [uid for uid in turns if _wins(pressure.pods[uid], need.resource)]
        assert [each.pod.uid for each in mine] == wins[: len(mine)]
        if before + sum(released) < need.remaining:  # all that can go does
            left = [pod for pod in may_go if pod.uid in wins[len(mine) :]]
            assert not left or before + sum(released) >= need.remaining - need.kept
            assert all(_is_within(pod, pressure.pods[pod.uid]) for pod in left)
        gone |= {each.pod.uid for each in mine}
    for each in found.evictions:
        assert each.pod.held_tier is not None
        assert each.pod.priority_class in (PriorityClass.MID, PriorityClass.BATCH)
        assert each.why
    later = {resource: Last(NOW, "another report") for resource in (MEMORY, CPU)}
    assert planned(of, *pods, last=later).evictions == ()
    assert planned(of, *pods, now=NOW + STALE_SECONDS + 1).evictions == ()


def _is_within(pod: PodRecord, used: PodPressure) -> bool:
    return pod.held_tier is Tier.MID and used.usage.memory_bytes <= pod.held.memory_bytes


def _wins(pod: PodPressure, resource: str) -> bool:
    return (pod.usage.memory_bytes if resource == MEMORY else pod.held.cpu_milli) > 0
