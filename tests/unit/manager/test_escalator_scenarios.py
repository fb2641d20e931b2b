"""Escalator's own scenarios of a scan, each told in words by the row whose id its test carries."""

import pytest

from manager.autoscaler.utilization.decisions import ScanDecision
from manager.autoscaler.utilization.observation import CloudGroup, GroupNode, GroupPod
from manager.autoscaler.utilization.rules import ScanRules
from shared.quantity import Resources
from tests.unit.manager.utilized import decided, node, nodes, pod, rules_of, seen


def group(**options: int | bool) -> ScanRules:
    """As Escalator's tests have it: nothing is removed unless they say so."""
    idle = {"taint_lower_capacity_threshold_percent": 0, "taint_upper_capacity_threshold_percent": 0}
    rates = {"slow_node_removal_rate": 0, "fast_node_removal_rate": 0}
    return rules_of("escalator", **{"min_nodes": 2, "max_nodes": 10, **idle, **rates, **options})


def on_each(there: tuple[GroupNode, ...], count: int, size: int) -> list[GroupPod]:
    """So many pods of a size on every node, which have it, and have not started yet."""
    return [pod(f"{each.name}-{number}", size, each.name, phase="Pending") for each in there for number in range(count)]


def scanned(
    rules: ScanRules, there: tuple[GroupNode, ...], *pods: GroupPod, least: int = 2, target: int = 5
) -> ScanDecision:
    return decided(rules, seen(there, *pods, cloud=CloudGroup(least, 10, target)))


def result(found: ScanDecision) -> tuple[int, int, str]:
    """The nodes wanted, what is asked of the cloud more than before, and the error."""
    return found.delta, found.target_change, found.error


def test_scale_on_starve_01_a_starved_pod_gets_one_node() -> None:
    there = nodes(5)
    found = scanned(group(scale_on_starve=True), there, *on_each(there, 10, 50), pod("starved", 550))
    assert result(found) == (1, 1, "")


def test_scale_on_starve_04_without_pods_nothing_starves() -> None:
    assert result(scanned(group(scale_on_starve=True), nodes(5))) == (0, 0, "")


def test_scale_on_starve_05_where_it_is_off_nodes_go_though_a_pod_starves() -> None:
    there = nodes(5)
    rules = group(scale_on_starve=False, taint_upper_capacity_threshold_percent=40, slow_node_removal_rate=1)
    found = scanned(rules, there, *on_each(there, 2, 50), pod("starved", 950))
    assert result(found) == (-1, 0, "")


def test_scale_on_starve_07_growth_by_the_threshold_is_not_held_to_one_node() -> None:
    there = nodes(5)
    found = scanned(group(scale_on_starve=True), there, *on_each(there, 10, 80), pod("starved", 550))
    assert result(found) == (2, 2, "")


def test_scale_on_starve_09_where_it_is_off_a_pod_below_the_threshold_starves() -> None:
    there = tuple(node(f"n{at}", allocatable=Resources(1000, 100_000)) for at in range(5))
    running = [GroupPod(f"p-{each.name}", Resources(850, 0), each.name, scheduled=True) for each in there]
    waiting = GroupPod("waits", Resources(200, 0), phase="Pending")
    rules = group(min_nodes=1, scale_up_threshold_percent=90)
    assert result(scanned(rules, there, *running, waiting, least=1)) == (0, 0, "")


@pytest.mark.parametrize("starve", [True, False])
def test_scale_on_starve_10_a_pod_that_only_starts_up_does_not_starve(starve: bool) -> None:
    """A known difference: for Escalator it starves, though it has its node."""
    there = nodes(1)
    starting = pod("starts", 600, there[0].name, phase="Pending")
    rules = group(min_nodes=1, scale_up_threshold_percent=90, scale_on_starve=starve)
    found = scanned(rules, there, starting, least=1, target=1)
    assert result(found) == (0, 0, "")


def test_untaint_first_02_tainted_nodes_come_back_and_the_cloud_is_at_its_maximum() -> None:
    there = (*nodes(5), *nodes(5, "tainted", tainted_for=0))
    full = [GroupPod(f"p{at}", Resources(1000, 1000), phase="Pending") for at in range(10)]
    found = scanned(group(), there, *full, target=10)
    assert result(found) == (10, 0, "")
    assert sorted(each.name for each in found.untaint.planned) == [f"tainted{at}" for at in range(5)]
    assert found.refusals


def test_untaint_first_03_what_is_missing_to_the_minimum_is_asked_of_the_cloud() -> None:
    there = (*nodes(3), *nodes(2, "cordoned", cordoned=True))
    small = GroupPod("small", Resources(1, 1), phase="Pending")
    found = scanned(group(min_nodes=5), there, small, least=5)
    assert result(found) == (2, 2, "")
