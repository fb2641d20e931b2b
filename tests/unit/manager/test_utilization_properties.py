"""What holds of scaling by utilisation whatever comes."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import arithmetic, scan
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.classes import classify
from manager.autoscaler.utilization.decisions import ScanDecision, ScanRule
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import CloudGroup, GroupNode, GroupPod, Observation
from shared.api.core import Taint
from shared.quantity import Resources
from tests.support.properties import examples
from tests.unit.manager.objects import NOW
from tests.unit.manager.utilized import SIZE, Town, names, node, nodes, pod, rules_of

COMPATS = st.sampled_from(["headroom", "escalator"])
AMOUNTS = st.integers(1, 10**7)


@given(COMPATS, st.integers(1, 50), AMOUNTS, AMOUNTS, st.integers(1, 200))
def test_so_many_nodes_more_bring_utilisation_to_the_threshold_and_one_fewer_does_not(
    compat: str, count: int, cpu: int, memory: int, threshold: int
) -> None:
    demand, size = Resources(cpu, memory), Resources(4000, 16_000)
    utilized = arithmetic.utilization(demand, Resources(count * 4000, count * 16_000), count)
    if utilized.percent <= threshold:
        return
    delta = arithmetic.nodes_more(utilized, threshold, count)

    def percent(nodes_then: int) -> float:
        capacity = Resources(size.cpu_milli * nodes_then, size.memory_bytes * nodes_then)
        return arithmetic.utilization(demand, capacity, nodes_then).percent

    assert percent(count + delta) <= threshold * (1 + 1e-9)
    assert percent(count + delta - 1) > threshold * (1 - 1e-9)


@given(AMOUNTS, AMOUNTS, st.integers(1, 200))
def test_nodes_from_zero_hold_the_demand_with_at_most_one_to_spare(cpu: int, memory: int, threshold: int) -> None:
    demand, size = Resources(cpu, memory), Resources(1000, 4000)
    found = arithmetic.nodes_from_zero(demand, size, threshold)
    needed = max(-(-cpu * 100 // (1000 * threshold)), -(-memory * 100 // (4000 * threshold)))
    assert needed <= found <= needed + 1


@st.composite
def observations(draw: st.DrawFn) -> tuple[Observation, dict[str, Any]]:
    """Any group, with options that fit it or not."""
    there: list[GroupNode] = []
    for at in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["plain", "plain", "tainted", "forced", "cordoned", "unready"]))
        kinds: dict[str, dict[str, Any]] = {
            "plain": {},
            "tainted": {
                "tainted_for": draw(st.integers(0, 1200)),
                "no_delete": draw(st.sampled_from(["", "", "yes"])),
            },
            "forced": {"force": True},
            "cordoned": {"cordoned": True, "tainted_for": 9999},
            "unready": {"ready": False},
        }
        there.append(node(f"n{at}", age=draw(st.integers(0, 10**5)), **kinds[kind]))
    homes = ["", *names(tuple(there)), "unknown"]
    pods = tuple(
        pod(f"p{at}", draw(st.integers(0, 1500)), draw(st.sampled_from(homes)))
        for at in range(draw(st.integers(0, 20)))
    )
    others = tuple(
        pod(f"o{at}", 1, draw(st.sampled_from(homes[1:])), of_node=draw(st.booleans()))
        for at in range(draw(st.integers(0, 3)))
    )
    least = draw(st.integers(0, 5))
    cloud = CloudGroup(draw(st.integers(0, 5)), draw(st.integers(5, 20)), draw(st.integers(0, 20)))
    options = {
        "min_nodes": least,
        "max_nodes": least + draw(st.integers(1, 15)),
        "scale_on_starve": draw(st.booleans()),
        "max_node_age": draw(st.sampled_from(["", "1h"])),
        "unhealthy_node_grace_period": draw(st.sampled_from(["", "10m"])),
        "health_check_newest_nodes_percent": draw(st.integers(1, 100)),
        "max_unhealthy_nodes_percent": draw(st.integers(0, 99)),
        "drain_before_termination": draw(st.booleans()),
        "balance_zones": draw(st.booleans()),
        "dry_mode": draw(st.integers(0, 9)) == 0,
    }
    return Observation(tuple(there), pods, cloud, others), options


MEMORIES = st.builds(
    Memory,
    lock=st.one_of(st.none(), st.builds(ScaleLock, st.floats(NOW - 300, NOW), st.integers(1, 5))),
    tainted_at=st.one_of(st.none(), st.floats(NOW - 300, NOW)),
)


@examples(300)
@given(COMPATS, observations(), MEMORIES)
def test_a_scan_never_goes_too_far(
    compat: str, given_group: tuple[Observation, dict[str, Any]], memory: Memory
) -> None:
    seen, options = given_group
    known = rules_of(compat, **options)
    decision = scan.decide(known, seen, memory, now=NOW)
    after = scan.remember(known, seen, memory, decision, now=NOW)
    _check(decision, seen, options)
    assert not (known.dry and decision.writes)
    assert known.dry or after.dry_tainted == ()
    if memories.lock_state(known, memory, now=NOW) and not any(
        step.rule is ScanRule.BELOW_MIN for step in decision.steps
    ):
        assert not decision.increase
        assert not decision.taint.count
        assert not decision.untaint.count
    if decision.increase:
        assert memories.lock_state(known, after, now=NOW)


def _check(decision: ScanDecision, seen: Observation, options: dict[str, Any]) -> None:
    classes = decision.classes
    kept = {each.node for each in (*seen.pods, *seen.others) if not each.of_node}
    for each in decision.reaped.nodes:
        assert each in classes.tainted
        assert not each.no_delete
    for verdict in decision.reaped.statuses:
        if verdict.goes and verdict.node.name in kept:
            assert verdict.tainted_at is not None
            assert NOW - verdict.tainted_at > 600
    assert not {each.name for each in decision.forced.nodes} & kept
    assert not {each.name for each in decision.drains} - kept
    drained = {each.node.name for each in decision.reaped.statuses if (each.tainted_at or 0) < NOW - 1200}
    undrained = {each.name for each in decision.deletions} - drained
    assert not options["drain_before_termination"] or not undrained & kept
    if decision.taint.count:
        assert len(classes.untainted) - decision.taint.count >= options["min_nodes"]
    if not options["dry_mode"]:
        touched = (*decision.health_taints, *decision.deletions, *decision.taint.planned, *decision.untaint.planned)
        assert not any(each.cordoned for each in touched)
    target = seen.cloud.target_size - len(decision.deletions) + decision.increase
    assert decision.increase == 0 or target <= min(seen.cloud.max_size, options["max_nodes"])
    assert not decision.deletions or seen.cloud.target_size - len(decision.deletions) >= seen.cloud.min_size
    left = len(seen.nodes) - len(decision.deletions)
    most = min(seen.cloud.max_size, options["max_nodes"])
    has_room = seen.cloud.target_size + len(classes.tainted) + options["min_nodes"] <= most
    assert not decision.deletions or not has_room or left >= options["min_nodes"]


def _placed(pods: tuple[GroupPod, ...], there: tuple[GroupNode, ...]) -> tuple[GroupPod, ...]:
    """Pending pods on the first node that has room for them and takes new ones."""
    free = {each.name: SIZE.cpu_milli for each in there}
    for each in pods:
        if each.node in free:
            free[each.node] -= each.requests.cpu_milli
    open_nodes = names(classify(there).untainted)
    found = []
    for each in pods:
        home = each.node or next((name for name in open_nodes if free[name] >= each.requests.cpu_milli), "")
        if home and not each.node:
            free[home] -= each.requests.cpu_milli
            found.append(structs.replace(each, node=home, phase="Running", scheduled=True))
        else:
            found.append(each)
    return tuple(found)


@examples(60)
@given(
    st.integers(1, 40),
    st.integers(0, 3),
    st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40)),
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
    st.lists(st.tuples(st.integers(-25, 25), st.integers(1, 12)), max_size=8),
    st.randoms(use_true_random=False),
)
def test_no_node_comes_back_or_is_bought_because_others_were_tainted(
    count: int,
    least: int,
    thresholds: tuple[int, int, int],
    rates: tuple[int, int],
    demands: list[tuple[int, int]],
    chance: random.Random,
) -> None:
    """As long as demand stays, there is no way up after the first step down: the two never take turns."""
    lower, between, above = thresholds
    options: dict[str, Any] = {
        "min_nodes": least,
        "taint_lower_capacity_threshold_percent": lower,
        "taint_upper_capacity_threshold_percent": lower + between,
        "scale_up_threshold_percent": lower + between + above,
        "slow_node_removal_rate": min(rates),
        "fast_node_removal_rate": max(rates),
        "scale_down_cool_down_period": "0",
        "untaint_grace_period": "0",
    }
    town = Town(rules_of(**options), nodes(count))
    for change, scans in demands:
        left = [each for each in town.pods if change > 0 or chance.random() < 0.5]
        left += [pod(f"p{town.now}-{at}", chance.randint(1, 900)) for at in range(max(0, change))]
        town.pods = tuple(left)
        has_tainted = False
        for _ in range(scans):
            town.pods = _placed(town.pods, town.nodes)
            decision = town.scan()
            if has_tainted:
                assert decision.delta <= 0
                assert not decision.untaint.count
                assert not decision.increase
            has_tainted = has_tainted or decision.taint.count > 0


EVENTS = st.one_of(
    st.tuples(st.just("pods"), st.integers(-10, 25)),
    st.tuples(st.sampled_from(["cordon", "uncordon", "protect", "force"]), st.integers(0, 50)),
    st.tuples(st.just("clock"), st.sampled_from([-7200, -30, 30, 300, 7200])),
)


def _happens(town: Town, what: str, much: int, chance: random.Random) -> None:
    """Something that people, jobs or clocks do to a group."""
    if what == "pods":
        left = [each for each in town.pods if much > 0 or chance.random() < 0.4]
        new = [pod(f"p{town.now}-{at}-{chance.random()}", chance.randint(0, 1000)) for at in range(max(0, much))]
        town.pods = _placed((*left, *new), town.nodes)
    elif what == "clock":
        town.now += much
    elif town.nodes:
        at = much % len(town.nodes)
        chosen = town.nodes[at]
        changed = {
            "cordon": replace(chosen, cordoned=True),
            "uncordon": replace(chosen, cordoned=False),
            "protect": replace(chosen, no_delete="yes"),
            "force": replace(chosen, taints=(*chosen.taints, Taint(taints.FORCE))),
        }[what]
        town.nodes = (*town.nodes[:at], changed, *town.nodes[at + 1 :])


@examples(200)
@given(
    COMPATS,
    st.integers(0, 20),
    st.integers(0, 4),
    st.tuples(st.booleans(), st.booleans(), st.integers(0, 9).map(lambda each: each == 0)),
    st.lists(st.tuples(EVENTS, st.sets(st.integers(0, 12)), st.booleans()), max_size=25),
    st.randoms(use_true_random=False),
)
def test_whatever_happens_and_fails_no_rule_is_ever_broken(
    compat: str,
    count: int,
    least: int,
    switches: tuple[bool, bool, bool],
    happenings: list[tuple[tuple[str, int], set[int], bool]],
    chance: random.Random,
) -> None:
    drains, starves, dry = switches
    known = rules_of(
        compat,
        min_nodes=least,
        max_nodes=25,
        drain_before_termination=drains,
        scale_on_starve=starves,
        max_node_age="2h",
        dry_mode=dry,
    )
    town = Town(known, nodes(count), max_size=30)
    for (what, much), failing, refuses in happenings:
        _happens(town, what, much, chance)
        before, memory, now = replace(town), town.memory, town.now
        fails = {each.name for at, each in enumerate(before.nodes) if at in failing}
        decision = town.scan(chance.choice([20, 60, 200]), fails=fails, refuses=refuses)
        _check_step(before, town, decision, was_locked=memories.lock_state(known, memory, now=now), now=now)


def _check_step(before: Town, after: Town, decision: ScanDecision, *, was_locked: bool, now: float) -> None:
    known = before.rules
    there = {each.name: each for each in after.nodes}
    if known.dry:
        assert after.nodes == before.nodes
        return
    for each in before.nodes:
        assert not each.cordoned or there.get(each.name) == each
        if each.name in there:
            continue
        pods_on = [one for one in before.pods if one.node == each.name]
        since = taints.tainted_at(each.taints)
        if taints.has_taint(each.taints, taints.FORCE):
            assert not pods_on
            continue
        assert not each.no_delete
        assert since is not None
        assert now - since > (known.hard_seconds if pods_on else known.soft_seconds)
        if pods_on and known.group.drain_before_termination:
            assert now - since > 2 * known.hard_seconds
    for each in before.nodes:
        if each.name in there and taints.has_taint(each.taints, taints.FORCE):
            assert there[each.name] == each
    bounds = known.group.bounds
    assert bounds is not None
    if decision.taint.count:
        assert len(classify(after.nodes).untainted) >= bounds.min_size
    assert len(after.nodes) <= max(bounds.max_size, len(before.nodes))
    if was_locked and not any(step.rule is ScanRule.BELOW_MIN for step in decision.steps):
        assert not decision.increase
        assert not decision.taint.count
        assert not decision.untaint.count
    assert not decision.increase or memories.lock_state(known, after.memory, now=now)
    assert was_locked or bool(decision.increase) == memories.lock_state(known, after.memory, now=now)


TROUBLE = st.one_of(
    st.tuples(st.just("pods"), st.integers(-10, 25)),
    st.tuples(st.sampled_from(["force", "break", "lose"]), st.integers(0, 50)),
    st.tuples(st.just("clock"), st.sampled_from([-30, 300, 7200])),
)


@examples(80)
@given(
    st.integers(0, 12),
    st.tuples(st.integers(0, 6), st.integers(1, 6) | st.just(0), st.integers(1, 15)),
    st.sampled_from([0, 90, 400]),
    st.booleans(),
    st.lists(st.tuples(TROUBLE, st.sampled_from(["delivers", "refuses", "gives up"])), max_size=20),
    st.randoms(use_true_random=False),
)
def test_a_group_whose_cloud_delivers_fits_its_demand_soon_whatever_happened_before(
    count: int,
    bounds: tuple[int, int, int],
    boot_seconds: float,
    drains: bool,
    happenings: list[tuple[tuple[str, int], str]],
    chance: random.Random,
) -> None:
    """Nodes that are forced out, broken or lost are replaced, also where the minimum is the maximum."""
    least, more, most_of_cloud = bounds
    most_nodes = max(1, least + more)
    known = rules_of(
        min_nodes=least,
        max_nodes=most_nodes,
        drain_before_termination=drains,
        unhealthy_node_grace_period="5m",
        health_check_newest_nodes_percent=50,
        max_unhealthy_nodes_percent=50,
    )
    most = min(most_nodes, max(least, most_of_cloud))
    town = Town(known, nodes(min(count, most)), max_size=max(least, most_of_cloud), boot_seconds=boot_seconds)
    for (what, much), cloud in happenings:
        _goes_wrong(town, what, much, chance)
        town.giving_up = cloud == "gives up"
        town.scan(chance.choice([20, 60, 200]), refuses=cloud == "refuses")
    town.giving_up = False
    forced = names(classify(town.nodes).force_tainted)  # who forces a node out empties it
    town.pods = tuple(structs.replace(each, node="") if each.node in forced else each for each in town.pods)
    for _ in range(100):
        town.pods = _placed(town.pods, town.nodes)
        decision = town.scan()
    if not town.pods:
        return
    classes = classify(town.nodes)
    demand = sum(each.requests.cpu_milli for each in town.pods)
    assert not classes.force_tainted
    assert all(each.ready for each in town.nodes)
    assert len(classes.untainted) >= least
    assert len(classes.untainted) == most or demand <= 700 * len(classes.untainted)
    assert decision.delta >= 0 or decision.taint.count == -decision.delta or decision.refusals


def _goes_wrong(town: Town, what: str, much: int, chance: random.Random) -> None:
    if what == "break" and town.nodes:
        at = much % len(town.nodes)
        town.nodes = (*town.nodes[:at], replace(town.nodes[at], ready=False), *town.nodes[at + 1 :])
    elif what == "lose" and town.nodes:
        lost = town.nodes[much % len(town.nodes)]
        town.nodes = tuple(each for each in town.nodes if each is not lost)
        town.pods = tuple(each for each in town.pods if each.node != lost.name)
    else:
        _happens(town, what, much, chance)


def test_92_nodes_at_48_percent_settle() -> None:
    """3 nodes are tainted at a time and 24 of them stay, because jobs run on them: demand does not change at all."""
    options: dict[str, Any] = {
        "taint_lower_capacity_threshold_percent": 30,
        "taint_upper_capacity_threshold_percent": 55,
        "scale_up_threshold_percent": 70,
        "slow_node_removal_rate": 3,
        "fast_node_removal_rate": 3,
        "hard_delete_grace_period": "24h",
    }
    there = nodes(92)
    jobs = tuple(pod(f"job{at}", 480, each.name) for at, each in enumerate(there))

    town = Town(rules_of(**options), there, jobs)
    assert max(town.scan(seconds=30).delta for _ in range(60)) == 0
