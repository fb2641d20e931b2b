"""`headroom plan -f` for gangs: nodes for all pods that a PodGroup needs at once, or none."""

from pathlib import Path
from typing import Any

import pytest

from deploy import plan
from tests.unit.local.test_plan_command import changes, dumped, node, owned, planned, pod, why_here

COSCHEDULING = "scheduling.x-k8s.io/pod-group"


def gang(count: int, name: str = "train", **policy: Any) -> dict[str, Any]:
    given = policy or {"gang": {"minCount": count}}
    meta = {"name": name, "namespace": "shop"}
    return {"kind": "PodGroup", "metadata": meta, "spec": {"schedulingPolicy": given}}


def member(name: str, cpu: str = "3", on: str | None = None, of: str = "train") -> dict[str, Any]:
    return pod(name, cpu, on, schedulingGroup={"podGroupName": of})


def members(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [member(f"m{number}", **more) for number in range(first, first + count)]


FULL = (node("a1", "a"), pod("full-a", "4", "a1"))
BOTH = (*FULL, node("b1", "b", "n1-standard-4"), pod("full-b", "4", "b1"))


def skipped(answer: Any) -> set[str]:
    return {each["reason"] for each in answer["skipped_pods"]}


def test_with_room_for_two_of_three_nothing_is_bought(tmp_path: Path) -> None:
    given = dumped(tmp_path, *FULL, gang(3), *members(3))
    answer = planned(given, "--nodes", "0:3:a")
    assert changes(answer) == {}
    assert skipped(answer) == {
        'PodGroup "shop/train" needs 3 pods at once: 2 of the 3 missing get a place, so no node is launched for it'
    }
    assert changes(planned(given, "--nodes", "0:4:a")) == {"a": (1, 4)}
    table = plan.main(["-f", str(given), "--nodes", "0:3:a"])
    assert table.startswith("No pod that is considered needs a new node.\n\nCluster  ")
    assert "Pending  3 pods: 3 not considered now\n" in table


def test_several_groups_may_carry_a_gang_together(tmp_path: Path) -> None:
    given = dumped(tmp_path, *BOTH, gang(4), *members(4))
    assert changes(planned(given, "--nodes", "0:3:a", "--nodes", "0:3:b")) == {"a": (1, 3), "b": (1, 3)}
    assert changes(planned(given, "--nodes", "0:3:a", "--nodes", "0:2:b")) == {}


def test_pods_beside_a_gang_that_gets_no_room_get_theirs(tmp_path: Path) -> None:
    given = dumped(tmp_path, *FULL, gang(3), *members(3), pod("plain"))
    assert changes(planned(given, "--nodes", "0:3:a")) == {"a": (1, 2)}


def test_of_two_gangs_with_room_for_one_one_gets_it(tmp_path: Path) -> None:
    other = members(2, 9, of="other")
    given = dumped(tmp_path, *FULL, gang(2), gang(2, "other"), *members(2), *other)
    answer = planned(given, "--nodes", "0:4:a")
    assert changes(answer) == {"a": (1, 3)}
    assert len(answer["skipped_pods"]) in (1, 2)


def test_pods_that_run_already_count_and_what_is_beyond_the_minimum_needs_no_company(tmp_path: Path) -> None:
    running = (node("c1", "c", "n1-standard-16", 16), *members(2, on="c1"), pod("full-c", "10", "c1"))
    given = dumped(tmp_path, *FULL, *running, gang(3), *members(2, 5))
    assert changes(planned(given, "--nodes", "0:2:a")) == {"a": (1, 2)}


def test_a_gang_that_fits_on_the_nodes_there_are_buys_nothing(tmp_path: Path) -> None:
    answer = planned(dumped(tmp_path, node("c1", "c", "n1-standard-16", 16), gang(3), *members(3)))
    assert changes(answer) == {}
    assert skipped(answer) == set()


def test_a_gang_whose_pods_or_podgroup_are_missing_waits_for_them(tmp_path: Path) -> None:
    answer = planned(dumped(tmp_path, *FULL, gang(3), *members(2)))
    assert changes(answer) == {}
    assert skipped(answer) == {'PodGroup "shop/train" has 2 of the 3 pods that it needs at once'}
    answer = planned(dumped(tmp_path, *FULL, gang(3, "other"), *members(2)))
    assert changes(answer) == {}
    assert skipped(answer) == {'PodGroup "shop/train" does not exist'}


def test_a_basic_policy_makes_no_gang(tmp_path: Path) -> None:
    given = dumped(tmp_path, *FULL, gang(0, basic={}), *members(3))
    assert changes(planned(given, "--nodes", "0:3:a")) == {"a": (1, 3)}


def test_the_coscheduling_plug_in_has_its_own_podgroups(tmp_path: Path) -> None:
    group = {"kind": "PodGroup", "metadata": {"name": "train", "namespace": "shop"}, "spec": {"minMember": 3}}
    labelled = [pod(f"m{number}") for number in range(3)]
    for each in labelled:
        each["metadata"]["labels"] = {COSCHEDULING: "train"}
    assert changes(planned(dumped(tmp_path, *FULL, group, *labelled), "--nodes", "0:3:a")) == {}
    assert changes(planned(dumped(tmp_path, *FULL, group, *labelled), "--nodes", "0:4:a")) == {"a": (1, 4)}
    assert changes(planned(dumped(tmp_path, *FULL, *labelled), "--nodes", "0:3:a")) == {"a": (1, 3)}


def test_podgroups_that_the_dump_lacks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(dumped(tmp_path, *FULL, *members(2)))
    assert "there is no PodGroup in" in capsys.readouterr().err


def test_a_node_stays_that_has_pods_of_a_gang_with_no_more_than_it_needs(tmp_path: Path) -> None:
    def reason(*pods: dict[str, Any]) -> str:
        objects = (node("c1", "c"), node("c2", "c"), node("c3", "c"), gang(2), *pods)
        return why_here(planned(dumped(tmp_path, *objects)))["c1"][1]

    def running(name: str, on: str) -> dict[str, Any]:
        return owned(name, on, schedulingGroup={"podGroupName": "train"})

    two = (running("m0", "c1"), running("m1", "c2"))
    assert reason(*two) == "BlockedByPod"
    assert reason(*two, running("m2", "c3")) == ""
