"""The autoscaler in a real manager, against the simulated cloud on a real API server."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry

from deploy.local.scheduler.scheduler import Scheduler
from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.simulated import fake_nodes, state_store
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, decode_registry, encode_registry
from manager.autoscaler.environment import ClusterAccess, NodeForecasts, ProcessParts
from manager.autoscaler.expander import priority
from manager.autoscaler.loop import Autoscaler
from manager.autoscaler.planning.group_templates import OfferedBy
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import group_rows, status
from manager.autoscaler.scale_up import pending_pods
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.informers import SharedInformers
from manager.main import Manager
from shared import durations, names
from shared import settings as settings_module
from shared.api.core import ConfigMap, Node, Pod
from shared.clock import Clock, SystemClock
from shared.errors import InvalidInput
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import NOT_LEADING, NotFound
from shared.kube.events import Recorder
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODS
from shared.quantity import Amounts
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster, StartManager, fetch, summed
from tests.support import eventually
from tests.support.apiserver import ROOT, ApiServer, rule
from tests.support.local_http import LOCAL_HTTP

ours = pytest.mark.own_decision("the autoscaler and its cloud decide, whichever API server keeps the registry")

WEB: dict[str, Any] = {"name": "web", "machine_type": "n1-standard-4", "max": 10, "labels": {"team": "web"}}
OTHER: dict[str, Any] = {**WEB, "name": "other"}
PATIENCE_SECONDS = 60.0
NEVER_SECONDS = 86_400  # longer than any test


class JumpingClock(SystemClock):
    """`ahead` of the time."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class PassingClock(JumpingClock):
    """The time that it is ahead has passed."""

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Town:
    """A cluster with a scheduler, a cloud, and managers that may buy there."""

    def __init__(
        self, cluster: Cluster, namespace: str, file: Path, start_manager: StartManager, *, schedules: bool = True
    ) -> None:
        self.cluster = cluster
        self.client: Client = cluster.client
        self.home = cluster.namespace
        self.namespace = namespace
        self.file = file
        self._start_manager = start_manager
        self._loops = Loops(CollectorRegistry())
        if schedules:
            Scheduler(self.client, Recorder(self.client, "scheduler", "test")).start(self._loops)

    def offer(self, *groups: dict[str, Any], **more: Any) -> None:
        """What the cloud has, from its next refresh on."""
        whole = self.file.with_suffix(".new")
        whole.write_text(yaml.safe_dump({"groups": list(groups), **more}))
        whole.replace(self.file)

    def manager(self, *nodes: str, **settings: Any) -> Manager:
        return self._start_manager(
            **{
                "cloud_provider": "simulated",
                "cloud_config": str(self.file),
                "nodes": nodes,
                "scan_interval_seconds": 0.1,
                **settings,
            }
        )

    def pods(self, count: int, cpu: str = "1900m", prefix: str = "p", **spec: Any) -> None:
        for number in range(count):
            resources = {"requests": {"cpu": cpu}}
            whole = {"containers": [{"name": "c", "image": "none", "resources": resources}], **spec}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{prefix}{number}"}, "spec": whole}
            self.client.create(PODS, body, self.namespace)

    @property
    def nodes(self) -> list[Node]:
        found = self.client.list(NODES, into=Node, label_selector=f"{fake_nodes.LABEL_CLOUD}=true").items
        return sorted(found, key=lambda node: node.metadata.name)

    @property
    def bound(self) -> dict[str, str]:
        """The node of each pod that has one."""
        listed = self.client.list(PODS, self.namespace).items
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName")}

    def eventually_bound(self, count: int) -> dict[str, str]:
        bound: dict[str, str] = {}

        def look() -> bool:
            nonlocal bound
            bound = self.bound
            return len(bound) == count

        try:
            eventually(look, PATIENCE_SECONDS)
        except AssertionError as error:
            error.add_note(f"bound: {bound}; nodes: {[node.metadata.name for node in self.nodes]}")
            raise
        return bound

    def eventually_unschedulable(self, count: int) -> None:
        """Returns once the scheduler has found no place for so many pods."""

        def found() -> int:
            return sum(map(pending_pods.found_unschedulable, self.client.list(PODS, self.namespace, into=Pod).items))

        eventually(lambda: found() == count, PATIENCE_SECONDS)

    @property
    def refusals(self) -> list[str]:
        """What the scheduler says of the pods for which it has found no place."""
        pods = self.client.list(PODS, self.namespace, into=Pod).items
        found = (pending_pods.unschedulable_condition(pod) for pod in pods if not pod.spec.node_name)
        return [each.message for each in found if each is not None]

    def targets(self) -> dict[str, int]:
        """What the cloud owes, by group."""
        try:
            found = self.client.get(CONFIGMAPS, state_store.CONFIG_MAP, self.home, into=ConfigMap)
        except NotFound:
            return {}
        groups = json.loads((found.data or {})[state_store.KEY])["groups"]
        return {name: entry.get("target", 0) for name, entry in groups.items()}

    def kept(self) -> Registry:
        """The autoscaler's own registry."""
        found = self.client.get(CONFIGMAPS, names.REGISTRY_CONFIG_MAP, self.home, into=ConfigMap)
        return decode_registry((found.data or {})[registry_store.KEY], "the test", time.time())

    def keep(self, name: str, **data: str) -> None:
        """Writes a ConfigMap of the home namespace, whatever stands there."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        with contextlib.suppress(NotFound):
            self.client.delete(CONFIGMAPS, name, self.home)
        self.client.create(CONFIGMAPS, body, self.home)

    def close(self) -> None:
        self._loops.close()
        for pod in self.client.list(PODS, self.namespace).items:
            with contextlib.suppress(NotFound):  # a manager that still runs may have evicted it
                self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace_period_seconds=0)


@pytest.fixture
def town(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Town]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    yield town
    town.close()


def latest(manager: Manager) -> dict[str, Any]:
    """The last round."""
    found: dict[str, Any] = fetch(manager, "/api/v1/decisions").json()["latest"] or {}
    return found


def later_rounds(manager: Manager, count: int = 3) -> None:
    """Returns once so many rounds more are over."""
    seen = latest(manager).get("iteration", 0)
    eventually(lambda: latest(manager).get("iteration", 0) >= seen + count, PATIENCE_SECONDS)


def later_decisions(manager: Manager) -> None:
    """The same of one that may have just begun, and that sees enough to decide."""
    eventually(lambda: latest(manager).get("blocked_reason") == "", PATIENCE_SECONDS)
    later_rounds(manager)


def decides(manager: Manager, group: str) -> Callable[[], dict[str, Any]]:
    """What was decided to do with a group, in the last round."""

    def decided() -> dict[str, Any]:
        actions = latest(manager).get("decisions", [])
        return next((action for action in actions if action["group"] == group), {})

    return decided


def test_pending_pods_become_nodes_and_are_bound(town: Town) -> None:
    town.offer(WEB)
    town.manager("0:10:web")
    town.pods(4, nodeSelector={"team": "web"})  # two fit on a node
    bound = town.eventually_bound(4)
    assert set(bound.values()) == {node.metadata.name for node in town.nodes}
    assert len(town.nodes) == 2


def test_status_events_metrics_and_api_tell_of_it(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:10:web")
    town.pods(1)
    town.eventually_bound(1)
    assert [event["reason"] for event in eventually(lambda: town.cluster.events("TriggeredScaleUp"))]
    assert eventually(lambda: town.cluster.events("ScaledUpGroup"))
    later_rounds(manager)
    found = town.client.get(CONFIGMAPS, "cluster-autoscaler-status", town.home, into=ConfigMap)
    said = status.read_status((found.data or {})[status.KEY])
    assert said is not None
    assert said.autoscaler_status == status.RUNNING
    assert [each.name for each in said.node_groups] == ["web"]
    assert found.metadata.annotation(status.ANNOTATION_LAST_UPDATED)
    eventually(lambda: 'headroom_autoscaler_nodes{state="ready"} 1.0' in fetch(manager, "/metrics").text)
    assert 'headroom_autoscaler_nodes_added_total{group="web"} 1.0' in fetch(manager, "/metrics").text
    (group,) = fetch(manager, "/api/v1/groups").json()["groups"]
    assert (group["id"], group["target_size"], group["mode"]) == ("web", 1, "enforce")


def test_people_say_in_a_config_map_which_group_comes_first(town: Town) -> None:
    town.offer(WEB, OTHER | {"labels": {"team": "other"}})
    town.keep(priority.CONFIG_MAP, **{priority.KEY: "{10: [web], 50: [other]}"})
    manager = town.manager("0:10:web", "0:10:other", expander="priority,price")
    town.pods(1)
    town.eventually_bound(1)
    assert town.targets() == {"web": 0, "other": 1}
    town.client.patch(CONFIGMAPS, priority.CONFIG_MAP, {"data": {priority.KEY: "nothing: [at, all"}}, town.home)
    eventually(lambda: latest(manager)["invalid_objects"], PATIENCE_SECONDS)
    town.pods(2, prefix="more")  # the last good order holds
    town.eventually_bound(3)
    assert town.targets() == {"web": 0, "other": 2}


@ours
def test_nothing_is_bought_for_what_reclaiming_gives(town: Town) -> None:
    town.offer(WEB)
    cluster = town.cluster
    cluster.configure(cpuReclaimThresholdPercent=50, memoryReclaimThresholdPercent=50)
    manager = town.manager("0:10:web", write_burst=1, writes_per_second=0.01)  # so slow that it is not written yet
    cluster.add_node("n1", lends=None)
    ready = {"conditions": node_heartbeat.conditions(time.time()), "allocatable": {"pods": "110"}}
    cluster.client.patch(NODES, "n1", {"status": ready}, kind=Patch.STRATEGIC, subresource="status")
    cluster.wait_for_metric("n1")
    usage = {"resources": {"cpu": "1", "memory": "0"}}
    report = {"updateTime": durations.timestamp(time.time()), "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
    cluster.client.patch(NODEMETRICS, "n1", {"status": report}, subresource="status")
    amounts = {names.BATCH_CPU: "500"}
    container = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    eventually(lambda: latest(manager).get("blocked_reason") == "", PATIENCE_SECONDS)
    town.pods(1, containers=[container])

    def reclaimed() -> int:
        return sum(each["reclaimed"] for each in latest(manager).get("pending", []))

    eventually(lambda: reclaimed() == 1, PATIENCE_SECONDS)
    later_rounds(manager)
    assert town.targets() == {"web": 0}


def test_nothing_is_bought_on_a_partial_view(town: Town, server: ApiServer) -> None:
    town.offer(WEB)
    town.pods(1)
    server.fault(rule("status", "daemonsets", times=0, status=503))
    manager = town.manager("0:10:web")
    eventually(lambda: "daemonsets" in latest(manager).get("blocked_reason", ""), PATIENCE_SECONDS)
    later_rounds(manager)
    assert "daemonsets" in fetch(manager, "/readyz").json()["waiting_for"]
    assert not town.nodes
    server.heal()
    town.eventually_bound(1)


def test_nothing_is_bought_on_a_view_that_may_be_stale(town: Town, server: ApiServer) -> None:
    town.offer(WEB)
    town.pods(1)
    server.fault(rule("status", "pods.*watch=true", times=0, status=503))
    manager = town.manager("0:10:web")
    eventually(lambda: "may have changed unseen: pods" in latest(manager).get("blocked_reason", ""), PATIENCE_SECONDS)
    later_rounds(manager)
    assert not town.nodes
    server.heal()
    town.eventually_bound(1)


def test_of_two_managers_one_buys(town: Town) -> None:
    town.offer(WEB)
    managers = [town.manager("0:10:web", leader_elect=True, identity=name) for name in ("one", "two")]
    town.pods(4)
    town.eventually_bound(4)
    for manager in managers:
        later_rounds(manager)
    assert town.targets() == {"web": 2}
    assert sorted(latest(manager)["blocked_reason"] for manager in managers) == ["", NOT_LEADING]


class Alone:
    """An autoscaler without a manager, whose rounds are made by hand; something may happen after it has looked."""

    def __init__(self, town: Town, *, dry_run: bool = False, clock: Clock | None = None, **given: Any) -> None:
        self.leads = True
        self.meanwhile: Callable[[], object] = lambda: None
        self._loops = Loops(CollectorRegistry())
        file = str(town.file)
        named: dict[str, Any] = {"cloud_provider": "simulated", "cloud_config": file, "nodes": ("0:10:web",)}
        settings = settings_module.combine(AutoscalerSettings, {**named, **given})
        self._config = decision_settings.load(settings)
        registry = CollectorRegistry()
        self._informers = SharedInformers(town.client, with_autoscaler=True)
        self.offered_by: OfferedBy = lambda _: {}
        self.autoscaler = Autoscaler(
            settings,
            self._config,
            ClusterAccess(town.client, self._informers, town.home, None, lambda: self.leads, dry_run),
            NodeForecasts(self._expected, lambda node: self.offered_by(node), lambda _: None),
            ProcessParts(clock or SystemClock(), self._loops, registry),
        )
        self._watch()

    def _watch(self) -> None:
        self._informers.start(self._loops)
        self.autoscaler._listers.start(self._loops)

    def _expected(self, _: Sequence[Node]) -> dict[str, Amounts]:
        self.meanwhile()
        return {}

    def round(self) -> Iteration:
        return self.autoscaler.run_once()

    def asked(self) -> Iteration:
        return self.autoscaler.plan_question((), self._config)

    def close(self) -> None:
        self._loops.close()
        self.autoscaler.close()


@pytest.fixture
def alone(town: Town) -> Iterator[Alone]:
    """It sees a pod that needs a node."""
    town.offer(WEB)
    town.pods(1)
    alone = Alone(town)
    yield alone
    alone.close()


def needs_a_node(alone: Alone) -> Iteration | None:
    made = alone.round()
    return made if any(action.kind is ActionKind.INCREASE for action in made.actions) else None


@ours
def test_whoever_loses_the_lease_while_it_thinks_does_not_act(alone: Alone, town: Town) -> None:
    def lose() -> None:
        alone.leads = False

    def decided() -> Iteration | None:
        alone.leads = True
        return needs_a_node(alone)

    alone.meanwhile = lose
    eventually(lambda: alone.round().blocked_reason == NOT_LEADING, PATIENCE_SECONDS)
    with pytest.raises(NotFound):
        town.kept()
    town.keep(names.REGISTRY_CONFIG_MAP, **{registry_store.KEY: encode_registry(Registry())})
    made = eventually(decided, PATIENCE_SECONDS)
    assert made is not None
    assert [(action.done, action.error) for action in made.actions] == [(False, "")]
    assert town.targets() == {"web": 0}
    assert not town.kept().requests


@ours
def test_whoever_leads_no_more_plans_nothing_by_what_it_once_saw(alone: Alone) -> None:
    eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
    assert alone.asked().decision is not None
    alone.leads = False
    alone.round()
    with pytest.raises(Unavailable, match=NOT_LEADING):
        alone.asked()


@ours
def test_a_question_about_the_future_does_not_keep_the_present_waiting(alone: Alone) -> None:
    eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
    asked: list[Iteration] = []

    def offered(_: Node) -> Amounts:
        """Asked of templates, in the midst of a plan."""
        alone.offered_by = lambda _: {}
        made = alone.round()
        assert not made.blocked_reason
        return {}

    alone.offered_by = offered
    asker = threading.Thread(target=lambda: asked.append(alone.asked()), daemon=True)
    asker.start()
    asker.join(PATIENCE_SECONDS)
    assert asked


@ours
def test_a_question_and_a_round_in_two_threads_do_not_deadlock(alone: Alone) -> None:
    """Each in the midst of what the other one works out, too: neither waits for the other."""
    eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
    made: list[Iteration] = []
    answered: list[Iteration] = []
    rounds = threading.Thread(target=lambda: made.append(alone.round()), daemon=True)

    def offered(_: Node) -> Amounts:
        """Asked of templates, in the midst of a plan."""
        alone.offered_by = lambda _: {}
        rounds.start()
        rounds.join(PATIENCE_SECONDS)
        return {}

    alone.offered_by = offered
    asker = threading.Thread(target=lambda: answered.append(alone.asked()), daemon=True)
    asker.start()
    asker.join(2 * PATIENCE_SECONDS)
    assert [each.blocked_reason for each in (*made, *answered)] == ["", ""]


@ours
def test_questions_are_answered_and_an_overdue_round_is_told_of_while_the_cloud_hangs(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.offer(WEB)
    manager = town.manager("0:10:web", scan_interval_seconds=0.1, autoscaling_mode="recommend")
    eventually(lambda: fetch(manager, "/api/v1/decisions").json()["latest"], PATIENCE_SECONDS)

    def overdue() -> tuple[int, bool, bool, float]:
        """By health (which stays good), by status and by metric."""
        health, state = fetch(manager, "/healthz"), fetch(manager, "/api/v1/status").json()
        in_health = "autoscaler" in health.json()["overdue_loops"]
        in_status = "autoscaler" in state["overdue_loops"]
        return (
            health.status_code,
            in_health,
            in_status,
            summed(manager, "headroom_autoscaler_iteration_overdue_seconds"),
        )

    def plan() -> httpx.Response:
        host, port = manager.address
        return LOCAL_HTTP.post(f"http://{host}:{port}/api/v1/plan", json={}, timeout=PATIENCE_SECONDS)

    eventually(lambda: plan().is_success, PATIENCE_SECONDS)
    refreshing, refreshed, refresh = threading.Event(), threading.Event(), SimulatedProvider.refresh

    def hang(cloud: SimulatedProvider) -> None:
        refreshing.set()
        refreshed.wait(PATIENCE_SECONDS)
        refresh(cloud)

    monkeypatch.setattr(SimulatedProvider, "refresh", hang)
    try:
        assert refreshing.wait(PATIENCE_SECONDS)
        assert {plan().status_code for _ in range(3)} == {200}
        eventually(lambda: overdue()[:3] == (200, True, True) and overdue()[3] >= 0.3, PATIENCE_SECONDS)
    finally:
        refreshed.set()
    eventually(lambda: overdue() == (200, False, False, 0.0), PATIENCE_SECONDS)


@ours
def test_a_round_in_which_nothing_is_looked_at_still_knows_what_all_costs(alone: Alone, town: Town) -> None:
    seen = eventually(lambda: made if (made := alone.round()).cost.total else None, PATIENCE_SECONDS)
    assert seen is not None
    town.offer(WEB, outage="out for a walk")
    made = eventually(lambda: found if (found := alone.round()).blocked_reason else None, PATIENCE_SECONDS)
    assert made is not None
    assert (made.cost, group_rows.groups(made).blocked_reason) == (seen.cost, made.blocked_reason)
    alone.leads = False
    assert alone.round().cost.total == 0


@ours
def test_a_jump_of_the_clock_makes_nothing_late(town: Town) -> None:
    town.offer(WEB | {"faults": {"never_register": True}})
    town.pods(1)
    clock = JumpingClock()
    alone = Alone(town, clock=clock)
    try:
        eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
        eventually(lambda: alone.round() and town.kept().unregistered, PATIENCE_SECONDS)
        clock.ahead = 3600.0
        made = alone.round()
        assert (made.blocked_reason, made.actions, made.incidents) == ("", (), ())
        assert list(town.kept().requests) == ["web"]
    finally:
        alone.close()


@ours
@pytest.mark.parametrize(("leads", "dry_run"), [(True, False), (True, True), (False, False)])
def test_only_who_has_acted_has_the_cloud_clean_up(town: Town, tmp_path: Path, leads: bool, dry_run: bool) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"answers": {"NodeGroups": {}, "NodeGroupForNode": {}}}))
    command = [sys.executable, "-m", "tests.support.grpc_cloud", str(tmp_path)]
    server = subprocess.Popen(command, cwd=ROOT)
    try:
        eventually((tmp_path / "port").exists, PATIENCE_SECONDS)
        file = tmp_path / "grpc.yaml"
        file.write_text(f"address: localhost:{(tmp_path / 'port').read_text()}")
        alone = Alone(town, dry_run=dry_run, cloud_provider="externalgrpc", cloud_config=str(file))
        alone.leads = leads
        eventually(lambda: alone.round().blocked_reason in ("", NOT_LEADING), PATIENCE_SECONDS)
        alone.close()
        called = [json.loads(line)["method"] for line in (tmp_path / "calls").read_text().splitlines()] if leads else []
        assert ("Cleanup" in called) == (leads and not dry_run)
        assert leads or not (tmp_path / "calls").exists()
    finally:
        server.kill()
        server.wait(20)


@ours
def test_the_registry_is_not_replaced_by_the_status(town: Town) -> None:
    town.offer(WEB)
    with pytest.raises(InvalidInput, match="--status-config-map-name"):
        Alone(town, status_config_map_name=names.REGISTRY_CONFIG_MAP)


@ours
def test_whoever_registers_while_the_cloud_is_asked_is_not_deleted(town: Town) -> None:
    town.offer(WEB | {"faults": {"never_register": True}})
    town.pods(1)
    alone = Alone(town, max_node_provision_time_seconds=0.001)

    def register() -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}, "spec": {"providerID": provider_id}}
        town.client.create(NODES, body)
        eventually(lambda: provider_id in alone.autoscaler._listers.provider_ids())

    try:
        eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
        alone.round()
        (provider_id,) = town.kept().unregistered["web"]
        alone.meanwhile = register
        made = alone.round()
        assert [(action.kind, action.nodes, action.done) for action in made.actions] == [
            (ActionKind.DELETE_NODES, (), False)
        ]
        assert town.targets() == {"web": 1}
    finally:
        alone.close()
        with contextlib.suppress(NotFound):
            town.client.delete(NODES, "late")


@ours
def test_a_round_that_breaks_down_says_so_and_the_next_one_is_made(alone: Alone, town: Town) -> None:
    def mistake() -> None:
        raise KeyError("a mistake of ours")

    alone.meanwhile = mistake
    eventually(lambda: "a mistake of ours" in alone.round().blocked_reason, PATIENCE_SECONDS)
    text = (town.client.get(CONFIGMAPS, "cluster-autoscaler-status", town.home, into=ConfigMap).data or {})[status.KEY]
    assert "a mistake of ours" in text
    alone.meanwhile = lambda: None
    eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)


def test_a_process_that_finds_the_registry_changed_does_not_act(alone: Alone, town: Town) -> None:
    alone.meanwhile = lambda: town.keep(names.REGISTRY_CONFIG_MAP, **{registry_store.KEY: encode_registry(Registry())})
    eventually(lambda: names.REGISTRY_CONFIG_MAP in alone.round().blocked_reason, PATIENCE_SECONDS)
    assert town.targets() == {"web": 0}
    alone.meanwhile = lambda: None
    eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
    assert town.targets() == {"web": 1}


@ours
def test_what_cannot_be_noted_first_is_not_bought(alone: Alone, town: Town, server: ApiServer) -> None:
    server.fault(rule("status", names.REGISTRY_CONFIG_MAP, method="PUT", times=0, status=403))
    made = eventually(lambda: needs_a_node(alone), PATIENCE_SECONDS)
    assert made is not None
    assert not any(action.done for action in made.actions)
    assert town.targets() == {"web": 0}
    server.heal()
    eventually(lambda: any(action.done for action in alone.round().actions), PATIENCE_SECONDS)
    assert town.targets() == {"web": 1}


@ours
def test_without_a_cloud_settings_of_the_autoscaler_are_told_to_be_of_no_use(
    cluster: Cluster, start_manager: StartManager, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.configure()
    start_manager(nodes=("0:1:web",))
    assert "the autoscaler does not run: --cloud-provider is not set" in caplog.text
