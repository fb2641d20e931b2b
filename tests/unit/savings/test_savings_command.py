"""`headroom savings`: stages that add up, on one simulated cluster, against the planner's own answers."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from deploy import plan
from deploy.savings import savings_table
from deploy.savings.rows import Savings
from tests.support import schemas
from tests.support.command_line import Run
from tests.unit.backtest.prometheus_server import PrometheusServer
from tests.unit.prices.cloud_prices import write_table
from tests.unit.savings import clusters
from tests.unit.savings.clusters import GIB, container, node, pod, shop
from tests.unit.savings.conftest import Command, Dump

MONTH = 730
EACH = 0.192 * MONTH  # of an m5.xlarge in us-east-1
HISTORY = ("--until", clusters.NOW, "--history-days", "8")


Answered: TypeAlias = Callable[..., Any]


@pytest.fixture
def answered(savings: Command) -> Answered:
    """An answer whose parts add up."""

    def run(*arguments: str | Path) -> Any:
        found = savings.answer(*arguments)
        adds_up(found)
        return found

    return run


def adds_up(found: Any) -> None:
    """Every stage ends with the bill that the next begins with, and nothing comes to more than the bill."""
    bill, parts = found["bill"]["total"], found["bill"]
    if found["without_headroom"] is None:
        assert all(stage["saved"] is None for stage in found["stages"])
        return
    shares = [parts[name] or 0.0 for name in ("used", "unused", "idle", "offered", "lent")]
    if parts["used"] is not None:
        assert sum(shares) == pytest.approx(bill, abs=0.05)
    assert sum(shares) <= bill + 0.05
    for stage in found["stages"]:
        if stage["needs_headroom"]:
            continue
        assert stage["bill"] == pytest.approx(bill - (stage["saved"] or 0.0), abs=0.02)
        bill = stage["bill"]
    assert found["without_headroom"] == pytest.approx(found["bill"]["total"] - bill, abs=0.05)
    assert found["without_headroom"] <= found["with_headroom"] + 0.001 <= found["bill"]["total"] + 0.05


def stages(found: Any) -> dict[str, Any]:
    return {stage["stage"]: stage for stage in found["stages"]}


def used_by_web(server: PrometheusServer, cores: float = 0.2, memory: float = 1.0 * GIB) -> None:
    clusters.serve(server, {(f"web-5d9c7b-{number}", "main"): (cores, memory) for number in range(3)})


def test_right_sizing_saves_nothing_by_itself_and_the_nodes_that_go_for_it_do(
    server: PrometheusServer, dump: Dump, answered: Answered
) -> None:
    used_by_web(server)
    path = dump(*shop())
    found = answered("-f", path, "--prometheus", server.url, *HISTORY)
    by_name = stages(found)
    assert by_name["nodes not needed today"]["saved"] == 0
    assert (by_name["right-sizing"]["saved"], by_name["right-sizing"]["cpu"]) == (0, 3 * (3000 - 230))
    assert by_name["nodes not needed then"]["saved"] == pytest.approx(2 * EACH, abs=0.01)
    assert by_name["nodes not needed then"]["nodes"] == 1
    assert found["without_headroom"] == pytest.approx(2 * EACH, abs=0.02)
    assert found["knowledge"]["sure"].startswith("high")
    assert found["groups"][0]["goes"] == 2


def test_nodes_that_go_today_are_counted_before_and_not_again(
    server: PrometheusServer, dump: Dump, answered: Answered
) -> None:
    used_by_web(server)
    path = dump(*shop(), node("empty"))
    by_name = stages(answered("-f", path, "--prometheus", server.url, *HISTORY))
    assert by_name["nodes not needed today"]["saved"] == pytest.approx(EACH, abs=0.01)
    assert by_name["nodes not needed then"]["saved"] == pytest.approx(2 * EACH, abs=0.01)
    assert by_name["nodes not needed then"]["nodes"] == 1


def test_without_usage_the_first_stage_is_what_the_planner_lets_go(
    tmp_path: Path, dump: Dump, answered: Answered
) -> None:
    path = dump(
        *shop(),
        node("empty"),
        node("small"),
        pod("x-5d9c7b-0", "x", "small", container(cpu="500m")),
    )
    found = answered("-f", path)
    planned = json.loads(plan.main(["-f", str(path), "-o", "json", "--prices", _prices(tmp_path)]))
    could_go = {row["node"] for row in planned["scale_down"]["nodes"] if row["standing"] in ("goes", "unneeded")}
    saved = stages(found)["nodes not needed today"]
    assert saved["saved"] == pytest.approx(planned["scale_down"]["savable_per_hour"] * MONTH, abs=0.02)
    assert saved["nodes"] == 5 - len(could_go)
    assert stages(found)["right-sizing"]["skipped"]


def _prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.yaml"
    path.write_text("machine_types: {m5.xlarge: 0.192, m5.4xlarge: 0.768, r5.xlarge: 0.252}")
    return str(path)


def test_a_cheaper_mix_takes_the_place_of_what_the_pods_do_not_need(dump: Dump, answered: Answered) -> None:
    dear = [node(f"d{number}", "r5.xlarge", pool="dear") for number in range(4)]
    full = [pod(f"w-5d9c7b-{number}", "w", f"d{number}", container(cpu="3500m", memory="4Gi")) for number in range(4)]
    path = dump(*dear, node("c", pool="cheap"), *full, pod("y-5d9c7b-0", "y", "c", container(cpu="3")))
    found = answered("-f", path)
    mix = stages(found)["cheaper node mix"]
    assert mix["saved"] == pytest.approx(4 * (0.252 - 0.192) * MONTH, abs=0.01)
    assert {row["group"]: row["then"] for row in found["groups"]} == {"dear": 0, "cheap": 5}


def test_each_node_says_whether_cheaper_nodes_replace_it_and_what_that_would_save(
    dump: Dump, savings: Command, answered: Answered
) -> None:
    nodes = [node(f"d{number}", "r5.xlarge", pool="dear") for number in range(2)]
    nodes += [node("c", pool="cheap"), node("own", "our-own", pool="own"), node("empty", pool="cheap")]
    full = [
        pod(f"w-5d9c7b-{number}", "w", name, container(cpu="3500m", memory="4Gi"))
        for number, name in enumerate(("d0", "d1", "c", "own"))
    ]
    path = dump(*nodes, *full)
    found = answered("-f", path)
    rows = {row["node"]: row for row in found["replacements"]}
    # What goes without a new node is in the first stage.
    assert list(rows) == ["d0", "d1", "own", "c"]
    for name in ("d0", "d1"):
        assert rows[name]["cost"] == pytest.approx(0.252 * MONTH, abs=0.01)
        assert rows[name]["saves"] == pytest.approx((0.252 - 0.192) * MONTH, abs=0.01)
        assert "1 of cheap at 0.192/h" in rows[name]["sentence"]
    assert (rows["c"]["saves"], rows["own"]["saves"]) == (0.0, None)
    assert [name for name, row in rows.items() if row["estimated"]] == ["own"]
    assert not any(row["saves_at_most"] for row in rows.values())
    assert "NoCheaperNodes" in rows["c"]["sentence"]
    assert "PriceUnknown" in rows["own"]["sentence"]
    said = savings("-f", path, "--top", "1")
    assert "REPLACED BY PRICE" in said
    assert "and 3 more (--top N; all: -o wide)" in said


def test_a_node_that_may_not_be_replaced_says_what_that_would_save_at_most(
    dump: Dump, savings: Command, answered: Answered
) -> None:
    held = {"karpenter.sh/do-not-disrupt": "true"}
    nodes = [node("d", "r5.xlarge", pool="dear"), node("c", pool="cheap")]
    full = [pod(f"w-5d9c7b-{name}", "w", name, container(cpu="3500m", memory="4Gi")) for name in ("c", "d")]
    full[1]["metadata"].setdefault("annotations", {}).update(held)
    path = dump(*nodes, *full)
    (row,) = [each for each in answered("-f", path)["replacements"] if each["node"] == "d"]
    assert (row["saves"], row["saves_at_most"]) == (pytest.approx((0.252 - 0.192) * MONTH, abs=0.01), True)
    assert "DoNotDisrupt" in row["sentence"]
    assert "<= 43.80" in savings("-f", path)


@pytest.fixture
def others_only(tmp_path: Path) -> tuple[str, Path]:
    """A table that the user names: nothing stands in for what it lacks."""
    return "--prices", write_table(tmp_path / "named")


def test_replacements_are_no_part_of_what_is_saved_and_none_is_said_where_no_price_is_known(
    dump: Dump, savings: Command, answered: Answered, others_only: tuple[str, Path]
) -> None:
    path = dump(node("own", "our-own", pool="own"), pod("w-0", "w", "own", container(cpu="1")))
    assert answered("-f", path, *others_only)["replacements"] == []
    assert "REPLACED BY PRICE" not in savings("-f", path, *others_only)


def test_a_machine_that_no_table_knows_has_a_price_by_its_size_and_every_sum_says_so(
    dump: Dump, savings: Command, answered: Answered
) -> None:
    """As `headroom plan` has it."""
    path = dump(node("a"), node("b", "m5.unheard", pool="other"), pod("w-0", "w", "a", container(cpu="1")))
    found = answered("-f", path)
    bill = found["bill"]
    assert (bill["nodes"], bill["unpriced_nodes"]) == (2, 0)
    assert (bill["estimated_nodes"], bill["estimated_types"]) == (1, ["m5.unheard"])
    planned = json.loads(plan.main(["-f", str(path), "-o", "json"]))
    assert bill["total"] == pytest.approx(planned["cost_per_hour"]["total"] * MONTH, abs=0.01)
    assert bill["total"] > EACH
    said = savings("-f", path)
    assert said.startswith("`headroom prices refresh aws --region us-east-1` fetches prices; until then ~ marks")
    assert f"costs ~{bill['total']:,.2f} USD a month: 2 nodes, 1 of them estimated by size (m5.unheard)" in said
    sums = re.findall(r"[~<= ]*[0-9,]+\.[0-9]{2}(?![0-9 ]*%)\b(?= |$)", said.partition("Node groups:")[0], re.MULTILINE)
    assert sums
    assert all("~" in each for each in sums), sums


def test_a_machine_that_a_named_table_lacks_counts_apart_and_stays(
    dump: Dump, answered: Answered, others_only: tuple[str, Path]
) -> None:
    path = dump(
        node("a"), node("b", "m5.unheard"), node("c", "own", pool="own"), pod("w", "w", "c", container(cpu="1"))
    )
    found = answered("-f", path, *others_only)
    bill = found["bill"]
    assert (bill["nodes"], bill["unpriced_nodes"], bill["unpriced_types"]) == (3, 2, ["m5.unheard", "own"])
    assert (bill["total"], bill["estimated_nodes"]) == (pytest.approx(EACH, abs=0.01), 0)
    assert stages(found)["nodes not needed today"]["nodes"] >= 2


def test_without_any_price_stages_say_which_nodes_go_and_no_sum(
    server: PrometheusServer, dump: Dump, answered: Answered, others_only: tuple[str, Path]
) -> None:
    used_by_web(server)
    unheard = [{**each, "metadata": {**each["metadata"], "labels": {}}} for each in shop() if each["kind"] == "Node"]
    path = dump(*unheard, *(each for each in shop() if each["kind"] == "Pod"))
    found = answered("-f", path, "--prometheus", server.url, *HISTORY, *others_only)
    assert [stage["saved"] for stage in found["stages"]] == [None] * 5
    by_name = stages(found)
    assert (by_name["right-sizing"]["cpu"], by_name["nodes not needed then"]["nodes"]) == (3 * (3000 - 230), 1)
    assert by_name["nodes not needed then"]["cpu"] == 8000
    assert by_name["cheaper node mix"]["skipped"] == "no node has a known price"
    assert any(note.endswith("--prices FILE gives prices of your own") for note in found["notes"])
    assert found["without_headroom"] is None
    said = savings_table.render(msgspec.convert(found, Savings), top=1)
    assert "costs an unknown sum: 3 nodes, none with a known price" in said
    assert "0.00" not in said


def test_a_dump_without_pods_says_what_nodes_cost_and_that_nothing_else_is_known(
    server: PrometheusServer, dump: Dump, savings: Command
) -> None:
    used_by_web(server)
    path = dump(lending("a", "2000"), node("b"))
    given = ("-f", path, "--prometheus", server.url, *HISTORY)
    found = savings.answer(*given)
    bill = found["bill"]
    assert bill["total"] == pytest.approx(2 * EACH, abs=0.01)
    assert [bill[part] for part in ("used", "unused", "idle", "offered", "lent")] == [None] * 5
    for stage in found["stages"]:
        assert (stage["saved"], stage["nodes"], stage["bill"]) == (None, 2, bill["total"])
        assert stage["skipped"] == f"there is no Pod in {path}"
    assert (found["without_headroom"], found["with_headroom"], found["since"]) == (None, None, None)
    (group,) = found["groups"]
    assert (group["goes"], group["then"], group["saved"]) == (None, None, None)
    assert found["notes"][0].endswith("savings are unknown: kubectl get nodes,pods -A -o json includes pods")
    assert "0.00" not in savings(*given)
    savings(*given, "--fail-above", "1", status=2)


@pytest.mark.parametrize("command", ["savings", "recommend"])
def test_what_cannot_say_anything_without_an_object_refuses_a_dump_without_it(
    command: str, dump: Dump, headroom: Run
) -> None:
    path, missing = (dump(*list(shop())[3:]), "Node") if command == "savings" else (dump(node("a")), "Pod")
    done = headroom(command, "-f", path)
    assert done.status == 2
    assert f"'{path}': it contains no {missing}: kubectl get nodes,pods -A -o json prints" in done.err


def test_pods_on_nodes_that_are_not_in_the_dump_do_not_count_and_a_note_says_so(dump: Dump, answered: Answered) -> None:
    path = dump(node("a"), pod("x-5d9c7b-0", "x", "a", container(cpu="1")), pod("y-0", "y", "b", container(cpu="4")))
    found = answered("-f", path)
    assert [row["workload"] for row in found["workloads"]] == ["x"]
    assert found["bill"]["idle"] > 0
    assert f"1 pods on nodes that are not in {path} are ignored" in found["notes"]


def test_the_tables_of_namespaces_and_workloads_count_what_each_replica_requests(
    server: PrometheusServer, dump: Dump, savings: Command, answered: Answered, recommend: Command
) -> None:
    """As in the middle of a rollout: the newest replica of three is the smallest."""
    used_by_web(server)
    mirror = {**pod("proxy-a", "proxy-a", "a", container(cpu="250m"))}
    mirror["metadata"] |= {"ownerReferences": [{"kind": "Node", "name": "a", "uid": "a", "controller": True}]}
    pods = [
        pod(f"web-5d9c7b-{number}", "web", "a", container(cpu=cpu, memory="1Gi"))
        for number, cpu in enumerate(("1", "900m", "500m"))
    ]
    starting = {"initContainers": [container("init", "2")]}
    path = dump(node("a"), mirror, *pods, pod("job-0", "job", "a", container(cpu="100m"), kind="Job", **starting))
    given = ("-f", path, "--prometheus", server.url, *HISTORY)
    found = answered(*given)
    rows = {row["workload"]: row for row in found["workloads"]}
    assert {name: row["cpu_requested"] for name, row in rows.items()} == {"web": 2400, "job": 2000, "proxy": 250}
    assert (rows["web"]["replicas"], rows["proxy"]["kind"]) == (3, "Node")
    (namespace,) = found["namespaces"]
    for amount in ("cpu_requested", "memory_requested", "cpu_freed", "memory_freed", "cost", "freed"):
        assert namespace[amount] == pytest.approx(sum(row[amount] for row in rows.values()), abs=0.02)
    assert namespace["cpu_requested"] == 2400 + 2000 + 250
    # Each replica then requests 230m, and what that frees is what the stage says.
    assert namespace["cpu_freed"] == stages(found)["right-sizing"]["cpu"] == 2400 - 3 * 230
    answer = recommend.answer(*given)
    assert answer["cpu_saved"] == 2400 - 3 * 230
    (row,) = (each for each in answer["containers"] if each["workload"] == "web")
    assert row["saved"] == pytest.approx(rows["web"]["freed"], abs=0.02)


def test_what_is_committed_is_paid_whatever_goes(
    tmp_path: Path, server: PrometheusServer, dump: Dump, answered: Answered
) -> None:
    used_by_web(server)
    path = dump(*shop())
    agreed = tmp_path / "agreed.yaml"
    agreed.write_text(
        "{currency: EUR, rate: 0.5, commitments: [{per_hour: 0.144, percent: 25, machine_types: [m5.*]}]}"
    )
    given = ("-f", path, "--prometheus", server.url, *HISTORY, "--discounts", agreed)
    found = answered(*given)
    # Three nodes at 0.096 EUR; 0.144 EUR pay for 0.192 EUR, two of them.
    assert found["currency"] == "EUR"
    assert found["bill"]["total"] == pytest.approx((0.144 + 0.096) * MONTH, abs=0.01)
    assert found["without_headroom"] == pytest.approx(0.096 * MONTH, abs=0.02)


def holding(name: str, on: str, cpu: str = "1000", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    """A Mid pod."""
    amounts = {"kubernetes.io/mid-cpu": cpu, "kubernetes.io/mid-memory": memory}
    return pod(name, name, on, {**container(), "resources": {"requests": amounts, "limits": amounts}}, **more)


def test_mid_that_is_offered_and_held_is_told_where_headroom_runs(dump: Dump, answered: Answered) -> None:
    path = dump(
        lending("a", "2000", "4Gi"),
        pod("w-5d9c7b-0", "w", "a", container(cpu="4", memory="16Gi")),
        holding("m", "a"),
    )
    found = answered("-f", path)
    assert 0 < found["since"]["lent"] < found["since"]["offered"] < EACH
    assert found["bill"]["lent"] == found["since"]["lent"]
    assert found["bill"]["idle"] == 0
    assert found["since"]["withdrawn_percent_per_day"] is None
    assert found["since"]["withdrawn_known"] == "unknown: the input has no NodeMetric"
    assert found["since"]["record"] is None


def test_without_any_price_what_is_offered_and_held_is_told_in_cores_and_gib(
    dump: Dump, answered: Answered, others_only: tuple[str, Path]
) -> None:
    offers = lending("a", "3000", "8Gi")
    offers["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "our-own"
    found = answered("-f", dump(offers, holding("m", "a")), *others_only)
    (why,) = (row["skipped"] for row in found["stages"] if row["needs_headroom"])
    assert why.endswith("3.0 cores and 8.0 GiB are on offer now, and pods request 1.0 cores and 1.0 GiB of that")


def test_what_mid_avoids_are_the_nodes_that_its_pods_would_need_where_none_has_room(
    tmp_path: Path, dump: Dump, savings: Command, answered: Answered
) -> None:
    full = [lending("a", "4000", "8Gi"), pod("w-5d9c7b-0", "w", "a", container(cpu="4", memory="16Gi"))]
    held = [holding(f"m{number}", "a", cpu="3000", memory="2Gi") for number in range(2)]
    since = answered("-f", dump(*full, *held))["since"]
    assert (since["avoided_nodes"], since["avoided"]) == (2, pytest.approx(2 * EACH, abs=0.01))
    with_room = answered("-f", dump(*full, *held, node("b")))["since"]
    assert (with_room["avoided_nodes"], with_room["avoided"]) == (1, pytest.approx(EACH, abs=0.01))
    said = savings("-f", tmp_path / "dump.json")
    assert "That avoids 1 node, 140.16 a month: the planner would launch them if the 2 pods requested" in said


def test_what_mid_avoids_is_not_known_where_its_pods_fit_on_no_new_node(dump: Dump, answered: Answered) -> None:
    there = [lending("a", "4000", "8Gi"), pod("w-5d9c7b-0", "w", "a", container(cpu="4", memory="16Gi"))]
    path = dump(*there, holding("m", "a", nodeSelector={"kubernetes.io/arch": "s390x"}))
    since = answered("-f", path)["since"]
    assert (since["avoided"], since["avoided_nodes"]) == (None, None)
    assert since["avoided_known"] == "not known: 1 of these pods would not fit on new nodes of these groups"


def test_what_was_offered_and_held_is_summed_over_the_hours_that_prometheus_remembers(
    server: PrometheusServer, dump: Dump, answered: Answered
) -> None:
    def since_days(days: float, amount: float) -> Any:
        return lambda time: amount if time > clusters.END - days * clusters.DAY else None

    used_by_web(server)
    server.series = {
        "headroom_manager_node_(mid|batch)_cpu_cores": [({}, since_days(4, 2.0))],
        "headroom_manager_node_(mid|batch)_memory_bytes": [({}, since_days(4, 4.0 * GIB))],
        "kubernetes_io_(mid|batch)_cpu": [({}, since_days(1, 1000.0))],
        "kubernetes_io_(mid|batch)_memory": [({}, since_days(1, 1.0 * GIB))],
        **server.series,
    }
    full = [lending("a", "2000", "4Gi"), pod("w-5d9c7b-0", "w", "a", container(cpu="4", memory="16Gi"))]
    path = dump(*full, holding("m", "a"))
    found = answered("-f", path, "--prometheus", server.url, *HISTORY)
    since, record = found["since"], found["since"]["record"]
    assert (record["start"], record["hours"]) == ("2025-12-28T01:00:00Z", 96)
    assert record["offered"] == pytest.approx(since["offered"] / MONTH * 96, abs=0.02)
    assert record["lent"] == pytest.approx(since["lent"] / MONTH * 24, abs=0.02)
    # A whole node would be bought for a quarter of one: of what was held no more is avoided than that was worth.
    assert since["avoided"] > since["lent"]
    assert record["avoided"] == record["lent"]
    said = savings_table.render(msgspec.convert(found, Savings), top=1)
    assert f"Since 2025-12-28T01:00:00Z, in USD and in all: {record['offered']:.2f} on offer, " in said


def test_without_kube_state_metrics_nothing_is_said_of_what_was_held(
    server: PrometheusServer, dump: Dump, answered: Answered
) -> None:
    used_by_web(server)
    server.series = {
        "kube_pod_": [],
        "headroom_manager_node_(mid|batch)_cpu_cores": [({}, lambda time: 2.0)],
        "headroom_manager_node_(mid|batch)_memory_bytes": [({}, lambda time: 0.0)],
        **server.series,
    }
    path = dump(lending("a", "2000"), pod("w-0", "w", "a", container(cpu="1")))
    record = answered("-f", path, "--prometheus", server.url, *HISTORY)["since"]["record"]
    assert (record["lent"], record["avoided"]) == (None, None)
    assert record["known"] == "8.0 days are recorded; the requests of pods are unknown without kube-state-metrics"


def reported(name: str, *withdrawals: tuple[int, str | None, str | None]) -> dict[str, Any]:
    listed = [
        {"windowSeconds": 86400 * days, "cpuPercentPerDay": cpu, "memoryPercentPerDay": memory}
        for days, cpu, memory in withdrawals
    ]
    return {
        "kind": "NodeMetric",
        "metadata": {"name": name, "uid": name},
        "status": {"prediction": {"withdrawals": listed}},
    }


def lending(name: str, cpu: str, memory: str = "0") -> dict[str, Any]:
    found = node(name)
    amounts = {"kubernetes.io/mid-cpu": cpu, "kubernetes.io/mid-memory": memory}
    found["status"] = {**found["status"], "allocatable": {**found["status"]["allocatable"], **amounts}}
    return found


def test_what_is_taken_back_is_what_agents_measured_weighed_by_what_nodes_lend(
    dump: Dump, savings: Command, answered: Answered
) -> None:
    path = dump(
        lending("a", "1000"),
        lending("b", "3000", "4Gi"),
        lending("silent", "2000"),
        node("lends-nothing"),
        reported("a", (1, "50", None), (28, "10", None)),
        reported("b", (28, "2", None)),
        reported("lends-nothing", (28, "90", "90")),
        reported("silent"),
        pod("w-0", "w", "a", container(cpu="1")),
    )
    since = answered("-f", path)["since"]
    assert since["withdrawn_percent_per_day"] == pytest.approx((1 * 10 + 3 * 2) / 4)
    assert since["withdrawn_known"] == "measured by agents of 2 of 3 nodes that lend, over 28 days at most"
    said = savings("-f", path)
    assert "4.0 % of it is withdrawn a day, measured by agents of 2 of 3 nodes that lend, over 28 days at most." in said


def test_what_no_agent_measured_is_not_said_to_be_nothing(dump: Dump, savings: Command, answered: Answered) -> None:
    path = dump(lending("a", "1000"), reported("a"), pod("w-0", "w", "a", container(cpu="1")))
    assert answered("-f", path)["since"]["withdrawn_percent_per_day"] is None
    said = savings("-f", path)
    assert "How much of it is withdrawn is unknown: no agent of a lending node has measured it" in said


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 6))])
def test_stages_of_any_cluster_add_up(seed: int, server: PrometheusServer, dump: Dump, answered: Answered) -> None:
    chance = random.Random(seed)
    kinds = [("m5.xlarge", 4, "a"), ("r5.xlarge", 4, "b"), ("m5.4xlarge", 16, "c"), ("unheard", 8, "d")]
    nodes = [
        node(f"n{number}", machine, cores, pool)
        for number in range(12)
        for machine, cores, pool in [chance.choice(kinds)]
    ]
    pods, used = [], {}
    for number in range(40):
        place = chance.choice(nodes)["metadata"]["name"]
        workload = f"w{number % 7}"
        cores = chance.choice([0.1, 0.25, 0.5, 1.0])
        pods.append(pod(f"{workload}-5d9c7b-{number}", workload, place, container(cpu=f"{cores}", memory="512Mi")))
        if number % 7:
            used[f"{workload}-5d9c7b-{number}", "main"] = (cores * chance.choice([0.1, 0.5, 2.0]), 200 * 2.0**20)
    clusters.serve(server, used, days=chance.choice([0.5, 8.0]))
    path = dump(*nodes, *pods)
    answered("-f", path, "--prometheus", server.url, *HISTORY)


def test_the_table_names_prices_hours_and_what_is_not_known(
    server: PrometheusServer, dump: Dump, savings: Command
) -> None:
    used_by_web(server)
    path = dump(*shop())
    text = savings("-f", path, "--prometheus", server.url, *HISTORY)
    for said in ("730 hours a month", "aws of 2026-07-20", "0 of 3 priced nodes are spot", "shop/web", "total"):
        assert said in text
    sheet = savings("-f", path, "-o", "csv")
    assert sheet.splitlines()[0].startswith("namespace,kind,workload,replicas")


def test_a_limit_makes_the_status_one(dump: Dump, savings: Command) -> None:
    path = dump(*shop(), node("empty"))
    savings("-f", path, "--fail-above", "100", status=1)
    savings("-f", path, "--fail-above", "200")


def test_the_published_schema_is_that_of_the_answer() -> None:
    assert schemas.published("savings") == msgspec.json.schema(Savings)


def test_names_are_those_that_recommend_takes_and_wide_has_every_row_in_full(
    server: PrometheusServer, dump: Dump, savings: Command, recommend: Command
) -> None:
    long = f"a-workload-whose-name-is-{'very-' * 6}long"
    pods = [pod(f"{name}-5d9c7b-0", name, "a", container("main", "1", "2Gi")) for name in (long, "web")]
    path = dump(node("a"), *pods)
    clusters.serve(server, {(f"{name}-5d9c7b-0", "main"): (0.2, 0.2 * GIB) for name in (long, "web")})
    known = ("-f", path, "--prometheus", server.url, *HISTORY)
    names = savings(*known, "-o", "name").split()
    assert sorted(names) == [f"shop/Deployment/{long}", "shop/Deployment/web"]
    assert f"shop/{long} " not in savings(*known, "--top", "1")
    wide = savings(*known, "--top", "1", "-o", "wide")
    assert all(f"  {name} " in wide for name in names)
    assert sorted(recommend(*known, "-o", "name").split()) == sorted(names)
    assert len(recommend.answer(*known, "--workload", names[0])["containers"]) == 1
