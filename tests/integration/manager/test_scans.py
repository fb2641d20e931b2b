"""Groups that scale by how full they are, on a real API server and the simulated cloud."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry

from manager.autoscaler import decision_settings
from manager.autoscaler.actuation.actuator import Actuator
from manager.autoscaler.actuation.group_writer import GroupWriter
from manager.autoscaler.actuation.node_deletion import DeletionOptions
from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.actuation.scans import ScanAccess, Scans
from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.contract import Group, NodeRef, Provider
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.plugin import ProviderRequest
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry_store import RegistryStore
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.listers import ClusterObjects, Listers, WatchedKinds
from manager.autoscaler.planning import utilization_method
from manager.autoscaler.planning.iteration import ScanResult
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import memory
from manager.autoscaler.utilization.decisions import ScanDecision
from manager.informers import SharedInformers
from manager.node_peaks import NodePeaks
from shared import names
from shared.api.core import Node, Pod
from shared.clock import ManualClock
from shared.errors import HeadroomError
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.errors import NOT_LEADING
from shared.kube.resources import NODES, PODDISRUPTIONBUDGETS, PODS
from shared.quantity import Resources
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.integration.manager.test_autoscaler import PATIENCE_SECONDS, Alone, JumpingClock, Town, later_rounds
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule

pytestmark = pytest.mark.embedded_only("of a server it wants what test_actuator.py and test_scale_down.py do")

# As Escalator's own documentation has it, one key that has died included.
ESCALATORS = """
node_groups:
  - name: "shared"
    label_key: "customer"
    label_value: "shared"
    cloud_provider_group_name: "shared-nodes"
    min_nodes: 1
    max_nodes: 30
    dry_mode: false
    taint_upper_capacity_threshold_percent: 40
    taint_lower_capacity_threshold_percent: 10
    slow_node_removal_rate: 2
    fast_node_removal_rate: 5
    scale_up_threshold_percent: 70
    scale_up_cool_down_period: 2m
    scale_up_cool_down_timeout: 10m
    soft_delete_grace_period: 1m
    hard_delete_grace_period: 10m
"""
CLOUD: dict[str, Any] = {
    "name": "shared-nodes",
    "machine_type": "n1-standard-4",
    "max": 30,
    "size": 2,
    "labels": {"customer": "shared"},
}
SELECTED: dict[str, Any] = {"nodeSelector": {"customer": "shared"}}
COOL_DOWN, SOFT, HARD = 121.0, 61.0, 601.0  # seconds, each just over


class Moody:
    """A cloud that deletes node by node until it comes to one that it keeps, in which it fails as is said."""

    def __init__(self, cloud: Provider) -> None:
        self._cloud = cloud
        self.keeps: set[str] = set()
        self.fails: type[ProviderError] = Refused
        self.deaf = False  # says to every increase what it says to those deletions
        self.goes_away = self.is_away = False  # nothing more can be asked once such a deletion has failed
        self.joining = 0
        self.booting_seconds: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)

    def refresh(self) -> None:
        if self.is_away:
            raise Unavailable("simulated", "", "it is away")
        self._cloud.refresh()

    def groups(self) -> Sequence[Group]:
        return [replace(each, joining=self.joining) for each in self._cloud.groups()]

    def increase(self, group: str, delta: int) -> None:
        if self.deaf:
            raise self.fails("simulated", group, "not now")
        self._cloud.increase(group, delta)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        for node in nodes:
            if node.name in self.keeps:
                self.is_away = self.goes_away
                raise self.fails("simulated", group, f"{node.name} is kept")
            self._cloud.delete_nodes(group, [node])

    def launched_at(self, node: NodeRef) -> float | None:
        if self.booting_seconds is None:
            return self._cloud.launched_at(node)
        return -self.booting_seconds


class Shop:
    """A cloud, its Nodes, and one process that scans by hand: as soon as is said, and at the time that is said."""

    def __init__(self, town: Town, others: Iterable[Mapping[str, Any]] = (), **options: Any) -> None:
        self.town = town
        self.client = town.client
        self.clock = ManualClock(time.time() + 60)
        self.leads = True
        self._loops = Loops(CollectorRegistry())
        file = town.file.with_name("groups.yaml")
        document = yaml.safe_load(ESCALATORS)
        groups = document["node_groups"]
        groups[0] |= options
        groups += [groups[0] | each for each in others]
        file.write_text(yaml.safe_dump(document) if options or others else ESCALATORS)
        cloud_config = str(town.file)
        settings = AutoscalerSettings(
            cloud_provider="simulated",
            cloud_config=cloud_config,
            node_groups=str(file),
            cloud_provider_timeout_seconds=1,
        )
        self.config = decision_settings.load(settings)
        given: dict[str, Any] = {"client": self.client, "namespace": town.home, "clock": self.clock}
        request = ProviderRequest(config=town.file, loops=self._loops, **given)
        self.cloud = Moody(plugin.build("simulated", request))
        self.guard = Guard(cast(Provider, self.cloud), self.config.ownership, deadline_seconds=5)
        lock = threading.Lock()
        self.registry = RegistryStore(
            ConfigMapStore(self.client, town.home, names.REGISTRY_CONFIG_MAP, registry_store.KEY), self._may_write
        )
        groups = GroupWriter(self.config, self.guard, lock, self.registry, self._may_write, self.clock)
        writer = NodeWriter(self.client, self.guard, lock, self._may_write)
        informers = SharedInformers(self.client, with_autoscaler=True)
        self.listers = Listers(
            self.client,
            informers,
            WatchedKinds(),
            expected=lambda _: {},
            peaks=lambda _: None,
            pending=lambda: None,
        )
        self.access = ScanAccess(writer, self.actuator(writer), groups.increase_for_scan)
        self.begin()

    def actuator(self, writer: NodeWriter) -> Actuator:
        return Actuator(writer, self.listers, DeletionOptions(), self.clock)

    def begin(self, *, dry_run: bool = False) -> None:
        """As a process that has just started."""
        self.scans = Scans(self.config, interval_seconds=60, dry_run=dry_run)

    def _may_write(self) -> bool:
        return self.leads

    def scan(
        self,
        seconds: float = 0.0,
        meanwhile: Callable[[], object] = lambda: None,
        peaks: Mapping[str, NodePeaks] | None = None,
        jump: float = 0.0,
    ) -> ScanResult:
        """After so many seconds, and a jump of the clock; `meanwhile` is what happens once everything has been looked
        at.
        """
        self.clock.advance(seconds)
        self.scans.shift(jump)
        self.clock.jump(jump)
        nodes = tuple(self.client.list(NODES, into=Node).items)
        pods = tuple(self.client.list(PODS, into=Pod).items)
        observed = self.guard.observe([NodeRef.from_node(node) for node in nodes])
        self.access.actuator.cloud_observed(observed)
        self.access.actuator.run_pass()
        now = self.clock.now()
        self.registry.read(now)
        meanwhile()
        upcoming = {name: each.nodes for name, each in self.registry.known.requests.items()}
        objects = ClusterObjects(now, nodes, pods, peaks=peaks)
        due = self.scans.request()
        planned = utilization_method.plan_scans(self.config, objects, self.guard.observed, due, upcoming=upcoming)
        return self.scans.carry_out(planned, self.access, nodes, now)

    @property
    def target(self) -> int:
        return self.town.targets()["shared-nodes"]

    @property
    def names(self) -> list[str]:
        return [node.metadata.name for node in self.town.nodes]

    @property
    def marks(self) -> dict[str, str]:
        """When each marked node was marked, in Unix seconds."""
        return {
            node.metadata.name: taint.value
            for node in self.town.nodes
            for taint in node.spec.taints or ()
            if taint.key == taints.TO_BE_REMOVED
        }

    def has(self, count: int) -> list[str]:
        """The nodes, once there are so many."""
        return eventually(lambda: self.names if len(self.names) == count else [], PATIENCE_SECONDS)

    def pod(self, name: str, node: str = "", cpu: str = "1900m", **metadata: Any) -> None:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], **SELECTED, **({"nodeName": node} if node else {})}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
        self.client.create(PODS, body, self.town.namespace)

    def gone(self, *names: str) -> None:
        for name in names:
            self.client.delete(PODS, name, self.town.namespace, grace_period_seconds=0)

    def close(self) -> None:
        self._loops.close()
        self.guard.close()


@pytest.fixture
def town(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Town]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager, schedules=False)
    town.offer(CLOUD)
    yield town
    town.close()


@pytest.fixture
def open_shop(town: Town) -> Iterator[Callable[..., Shop]]:
    opened: list[Shop] = []

    def start(**options: Any) -> Shop:
        opened.append(Shop(town, **options))
        return opened[-1]

    yield start
    for shop in opened:
        shop.close()


def only(scanned: ScanResult) -> ScanDecision:
    (decision,) = scanned.decisions
    return decision


def actions(scanned: ScanResult, what: ActionKind) -> list[Action]:
    return [action for action in scanned.actions if action.kind is what]


def test_an_escalators_file_scales_up_and_down_and_changes_its_mind(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop()
    shop.guard.observe()
    first = shop.has(2)
    born = max(node.metadata.created_at for node in shop.town.nodes)
    eventually(lambda: time.time() >= born + 1)  # the API server knows whole seconds
    for number in range(5):
        shop.pod(f"p{number}")
    (action,) = shop.scan().actions
    assert (action.kind, action.from_size, action.to_size, action.max_size, action.done) == (
        ActionKind.INCREASE,
        2,
        4,
        30,
        True,
    )
    assert action.reason == "above the scale-up threshold: 121.2 % of cpu, scale_up_threshold_percent is 70"
    everything = shop.has(4)
    assert only(shop.scan(1)).locked
    assert shop.scan(COOL_DOWN).actions == ()  # 61 % is enough
    shop.gone("p1", "p2", "p3", "p4")
    (action,) = shop.scan().actions
    assert (action.kind, action.done, set(action.nodes)) == (ActionKind.TAINT, True, set(first))  # the oldest
    assert shop.marks == dict.fromkeys(first, str(int(shop.clock.now())))
    for number in range(5, 9):
        shop.pod(f"p{number}")
    (action,) = shop.scan(1).actions
    assert (action.kind, set(action.nodes), shop.target) == (ActionKind.UNTAINT, set(first), 4)
    assert shop.marks == {}
    shop.gone(*(f"p{number}" for number in range(5, 9)))
    assert len(actions(shop.scan(COOL_DOWN), ActionKind.TAINT)) == 1
    marked = set(shop.marks)
    assert shop.scan(SOFT - 2).actions == ()
    (action,) = actions(shop.scan(2), ActionKind.DELETE_NODES)
    assert (set(action.nodes), action.from_size, action.to_size, action.done) == (marked, 4, 2, True)
    assert action.reason == "empty for long enough"
    assert set(shop.names) == set(everything) - marked
    assert shop.target == 2


def idle(shop: Shop, pods: str = "100m") -> tuple[list[str], list[str]]:
    """Two of four nodes marked, a pod on each of the four: the marked ones, and the others. Options are FEW."""
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    there = shop.has(4)
    for node in there if pods else ():
        shop.pod(f"on-{node}", node, pods)
    shop.scan()
    marked = sorted(shop.marks)
    assert len(marked) == 2
    return marked, sorted(set(there) - set(marked))


FEW = {"fast_node_removal_rate": 2}


def test_a_node_with_pods_stays_until_its_hard_deadline(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    marked, _ = idle(shop)
    assert not actions(shop.scan(SOFT), ActionKind.DELETE_NODES)
    assert not actions(shop.scan(HARD - SOFT - 2), ActionKind.DELETE_NODES)
    (action,) = actions(shop.scan(2), ActionKind.DELETE_NODES)
    assert (sorted(action.nodes), action.reason, action.done) == (marked, "past its hard deadline", True)


def test_a_node_may_be_drained_first_as_far_as_budgets_let(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW, drain_before_termination=True)
    shop.town.client.create(PODDISRUPTIONBUDGETS, BUDGET, shop.town.namespace)
    marked, _ = idle(shop)
    kept, free = marked
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for patch, where in (({"metadata": {"labels": {"app": "kept"}}}, None), ({"status": status}, "status")):
        shop.client.patch(PODS, f"on-{kept}", patch, shop.town.namespace, subresource=where)
    began = shop.scan(HARD)
    done, refused = actions(began, ActionKind.REMOVE_NODES)
    assert (done.nodes, done.done, done.reason) == ((free,), True, "past its hard deadline, its pods are evicted first")
    assert (refused.nodes, refused.done) == ((kept,), False)
    assert "disruption budget" in refused.error
    assert not actions(began, ActionKind.DELETE_NODES)
    shop.gone(f"on-{free}")  # as its kubelet does in the end
    (action,) = actions(shop.scan(60), ActionKind.DELETE_NODES)
    assert action.nodes == (free,)
    assert kept in shop.names


def test_a_pod_whose_eviction_fails_keeps_no_other_from_being_asked(
    open_shop: Callable[..., Shop], server: ApiServer
) -> None:
    shop = open_shop(**FEW, drain_before_termination=True)
    marked, _ = idle(shop)
    for node in marked:
        shop.pod(f"second-{node}", node, "100m")
    failing = [rule("status", f"/pods/on-{node}/eviction", method="POST", times=0, status=500) for node in marked]
    told = actions(shop.scan(HARD, meanwhile=lambda: server.fault(*failing)), ActionKind.REMOVE_NODES)
    server.heal()
    assert [(sorted(action.nodes), action.done) for action in told] == [(marked, False)]
    for node in marked:
        assert f"{node}: {shop.town.namespace}/on-{node} stays: 500" in told[0].error
    assert "budget" not in told[0].error
    leaving = {pod.metadata.name for pod in shop.client.list(PODS, into=Pod).items if pod.metadata.deletion_timestamp}
    assert leaving == {f"second-{node}" for node in marked}
    (action,) = actions(shop.scan(60), ActionKind.REMOVE_NODES)
    assert (sorted(action.nodes), action.done) == (marked, True)


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_jump_of_the_clock_makes_no_taint_older_or_younger(
    open_shop: Callable[..., Shop], jump: float, drains: bool
) -> None:
    shop = open_shop(**FEW, drain_before_termination=drains)
    marked, _ = idle(shop)
    assert shop.scan(5, jump=jump).actions == ()
    shop.gone(f"on-{marked[0]}")
    assert shop.scan(SOFT - 7).actions == ()
    (action,) = actions(shop.scan(2), ActionKind.DELETE_NODES)
    assert (action.nodes, action.done) == ((marked[0],), True)
    assert not actions(shop.scan(HARD - SOFT - 2), ActionKind.DELETE_NODES)
    what = ActionKind.REMOVE_NODES if drains else ActionKind.DELETE_NODES
    assert [(action.nodes, action.done) for action in actions(shop.scan(2), what)] == [((marked[1],), True)]


def test_a_taint_of_a_clock_that_was_ahead_keeps_no_empty_node(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    for node in shop.has(4):
        shop.pod(f"on-{node}", node)
    ahead = shop.names[0]
    mark = {"key": taints.TO_BE_REMOVED, "value": str(int(shop.clock.now() + 30 * 86400)), "effect": "NoSchedule"}
    shop.client.patch(NODES, ahead, {"spec": {"taints": [mark]}})
    shop.gone(f"on-{ahead}")
    assert not actions(shop.scan(), ActionKind.DELETE_NODES)
    assert not actions(shop.scan(SOFT - 2), ActionKind.DELETE_NODES)
    (action,) = actions(shop.scan(2), ActionKind.DELETE_NODES)
    assert (action.nodes, action.done, action.reason) == ((ahead,), True, "empty for long enough")


def test_a_jump_of_the_clock_asks_for_nothing_twice(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop()
    shop.guard.observe()
    shop.has(2)
    shop.town.offer(CLOUD | {"size": 2, "faults": {"never_register": True}})
    for number in range(5):
        shop.pod(f"p{number}")
    assert [action.done for action in actions(shop.scan(), ActionKind.INCREASE)] == [True]
    for jump in (7200.0, -3600.0, -7200.0):
        assert only(shop.scan(10, jump=jump)).locked
    assert (actions(shop.scan(COOL_DOWN), ActionKind.INCREASE), shop.target) == ([], 4)  # they are on their way still
    shop.scans.shift(-3600.0)
    shop.clock.jump(-3600.0)
    shop.clock.advance(59)
    assert shop.scans.due_in(shop.clock.now()) == pytest.approx(1)


def test_scans_hear_from_their_round_that_the_clock_has_jumped(town: Town) -> None:
    town.pods(5, **SELECTED)
    clock = JumpingClock()
    file = town.file.with_name("groups.yaml")
    file.write_text(ESCALATORS)
    alone = Alone(town, clock=clock, nodes=(), node_groups=str(file), utilization_scan_interval_seconds=0.1)
    try:
        eventually(lambda: any(each.locked for each in alone.round().scans), PATIENCE_SECONDS)
        for ahead in (7200.0, 0.0):
            clock.ahead = ahead
            scans = eventually(lambda: alone.round().scans, PATIENCE_SECONDS)  # none before the interval is over
            assert [each.locked for each in scans] == [True]
    finally:
        alone.close()


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "never"},
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}},
}


def test_whoever_begins_between_mark_and_deletion_goes_on_by_the_marks(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    marked, others = idle(shop)
    shop.begin()
    shop.scan(SOFT - 30)
    assert set(marked) <= set(shop.marks)
    shop.gone(*(f"on-{node}" for node in marked))
    shop.begin()
    (action,) = actions(shop.scan(31), ActionKind.DELETE_NODES)
    assert sorted(action.nodes) == marked
    assert set(others) <= set(shop.names)


def test_whoever_begins_waits_for_what_is_on_its_way(open_shop: Callable[..., Shop], town: Town) -> None:
    shop = open_shop()
    shop.guard.observe()
    shop.has(2)
    town.offer(CLOUD | {"boot_seconds": 86_400})
    for number in range(5):
        shop.pod(f"p{number}")
    assert shop.scan().actions[0].to_size == 4
    shop.begin()
    assert only(shop.scan(60)).locked
    assert shop.target == 4
    shop.scan(COOL_DOWN)
    assert shop.target == 4  # machines may take longer than the cool-down
    shop.scan(memory.PATIENCE_SECONDS)
    assert shop.target == 6


def test_what_has_changed_since_it_was_looked_at_is_passed_over(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    there = shop.has(4)
    for node in there:
        shop.pod(f"on-{node}", node, "100m")

    def cordon(node: str) -> None:
        shop.client.patch(NODES, node, {"spec": {"unschedulable": True}})

    oldest = [node.name for node in only(shop.scan()).taint.planned]
    shop.begin()
    for name in there:
        shop.client.patch(NODES, name, {"spec": {"taints": []}})
    first, second = actions(shop.scan(1, meanwhile=lambda: cordon(oldest[0])), ActionKind.TAINT)
    assert (oldest[0] in first.nodes, len(first.nodes), first.done) == (False, 2, True)
    assert (second.nodes, second.done) == ((oldest[0],), False)
    assert "cordoned" in second.error
    assert set(shop.marks) == set(first.nodes)

    empty, *rest = first.nodes
    shop.gone(*(f"on-{node}" for node in first.nodes))
    deleted, kept = actions(shop.scan(SOFT, meanwhile=lambda: shop.pod("late", empty)), ActionKind.DELETE_NODES)
    assert (deleted.nodes, deleted.done) == (tuple(rest), True)
    assert (kept.nodes, kept.error) == ((empty,), f"{empty}: holds pods")
    assert empty in shop.names


def test_others_taints_stay_as_they_are(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    # Of nobody who would take it off again, as the controllers of a real cluster do with their own.
    theirs = {"key": "example.com/theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    for node in shop.has(4):
        shop.client.patch(NODES, node, {"spec": {"taints": [theirs]}})
    shop.scan()
    found = [shop.client.get(NODES, node)["spec"]["taints"] for node in shop.marks]
    assert [each[0] for each in found] == [theirs, theirs]
    assert [(each[1]["key"], each[1]["effect"]) for each in found] == [("atlassian.com/escalator", "NoSchedule")] * 2


def test_a_cloud_that_refuses_is_asked_again_and_one_that_hangs_is_waited_for(
    open_shop: Callable[..., Shop], town: Town
) -> None:
    shop = open_shop()
    shop.guard.observe()
    shop.has(2)
    for number in range(5):
        shop.pod(f"p{number}")
    town.offer(CLOUD | {"faults": {"refuse": "not today"}})
    refused = shop.scan()
    assert [(action.kind, action.done, "not today" in action.error) for action in refused.actions] == [
        (ActionKind.INCREASE, False, True)
    ]
    assert not only(shop.scan(1)).locked
    slow = CLOUD | {"boot_seconds": 86_400}
    town.offer(slow | {"faults": {"hang_seconds": 30}})
    (action,) = shop.scan(60).actions
    assert (action.done, "no answer" in action.error) == (False, True)
    shop.clock.advance(30)  # and now it has been done

    def answers() -> bool:
        with contextlib.suppress(Unavailable):
            return bool(shop.guard.observe().groups)
        return False

    eventually(answers)
    town.offer(slow)
    assert only(shop.scan(1)).locked
    assert shop.target == 4


@pytest.mark.parametrize(
    ("fails", "goes_away"), [(Refused, False), (Later, False), (Unavailable, False), (Unavailable, True)]
)
@pytest.mark.parametrize("compat", ["headroom", pytest.param("escalator", marks=pytest.mark.thorough)])
def test_forced_nodes_that_the_cloud_keeps_keep_nobody_from_growing(
    open_shop: Callable[..., Shop], compat: str, fails: type[ProviderError], goes_away: bool
) -> None:
    shop = open_shop(compat=compat)
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    forced = shop.has(4)[:2]
    for name in forced:
        shop.client.patch(NODES, name, {"spec": {"taints": [{"key": taints.FORCE, "effect": "NoSchedule"}]}})
    shop.cloud.keeps, shop.cloud.fails, shop.cloud.goes_away = set(forced), fails, goes_away
    for seconds in (0.0, COOL_DOWN):
        before = shop.target
        for number in range(9):
            shop.pod(f"p{before}-{number}")
        shop.cloud.is_away = False
        told = shop.scan(seconds)
        assert [action.done for action in actions(told, ActionKind.INCREASE)] == [True]
        assert [action.done for action in actions(told, ActionKind.DELETE_NODES)] == [False]
        assert shop.target > before
        shop.has(shop.target)
    assert set(forced) <= set(shop.names)


def test_where_the_cloud_is_full_what_is_to_go_goes_first(open_shop: Callable[..., Shop], town: Town) -> None:
    shop = open_shop()
    town.offer(CLOUD | {"size": 4, "max": 4})
    shop.guard.observe()
    forced = shop.has(4)[:2]
    for name in forced:
        shop.client.patch(NODES, name, {"spec": {"taints": [{"key": taints.FORCE, "effect": "NoSchedule"}]}})
    for number in range(9):
        shop.pod(f"p{number}")
    shop.cloud.keeps = {forced[0]}
    told = [(action.kind, action.from_size, action.to_size, action.done) for action in shop.scan().actions]
    deleted, kept = (ActionKind.DELETE_NODES, 4, 3, True), (ActionKind.DELETE_NODES, 3, 2, False)
    assert told == [deleted, kept, (ActionKind.INCREASE, 3, 4, True)]


@pytest.mark.parametrize(("fails", "locks"), [(Later, False), (Refused, False), (Unavailable, True)])
def test_only_what_may_have_been_done_is_waited_for(
    open_shop: Callable[..., Shop], fails: type[ProviderError], locks: bool
) -> None:
    shop = open_shop()
    shop.guard.observe()
    shop.has(2)
    for number in range(5):
        shop.pod(f"p{number}")
    shop.cloud.deaf, shop.cloud.fails = True, fails
    assert [action.done for action in shop.scan().actions] == [False]
    shop.cloud.deaf = False
    again = shop.scan(1)
    assert only(again).locked is locks
    assert [action.done for action in again.actions] == ([] if locks else [True])


def test_a_group_that_has_failed_to_grow_for_pending_pods_is_left_alone_by_scans_too(
    open_shop: Callable[..., Shop],
) -> None:
    shop = open_shop(policy="both")
    shop.guard.observe()
    shop.has(2)
    for number in range(5):
        shop.pod(f"p{number}")
    shop.cloud.deaf = True
    assert "not now" in shop.scan().actions[0].error
    shop.cloud.deaf = False
    (action,) = shop.scan(60).actions
    assert (action.done, "in backoff after: " in action.error) == (False, True)
    assert not only(shop.scan(1)).locked
    assert [action.done for action in shop.scan(300).actions] == [True]


@pytest.mark.parametrize("fails", [Refused, Unavailable])
def test_of_a_batch_that_fails_half_way_all_go_that_may(
    open_shop: Callable[..., Shop], fails: type[ProviderError]
) -> None:
    shop = open_shop(fast_node_removal_rate=3)
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    shop.has(4)
    shop.scan()
    first, second, third = (node.name for node in only(shop.scan(1)).classes.tainted)
    shop.cloud.keeps, shop.cloud.fails = {second}, fails
    deleted, kept = actions(shop.scan(SOFT), ActionKind.DELETE_NODES)
    left = {second} if fails is Refused else {second, third}  # one that gives no answer is not asked at once again
    assert (set(deleted.nodes), deleted.done) == ({first, second, third} - left, True)
    assert (set(kept.nodes), kept.done) == (left, False)
    assert (set(shop.marks), shop.target, len(shop.names)) == (left, 1 + len(left), 1 + len(left))
    told = shop.scan(60)
    assert second in shop.names
    assert not any(action.done for action in told.actions if second in action.nodes)
    shop.cloud.keeps = set()
    shop.scan(60)
    assert (shop.marks, shop.target, len(shop.names)) == ({}, 1, 1)


def test_no_more_are_deleted_than_leave_the_minimum_to_those_that_are_there(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    marked, _ = idle(shop, pods="")
    shop.town.offer(CLOUD | {"size": 4, "min": 1})
    shop.cloud.joining = 2
    deleted, kept = actions(shop.scan(SOFT), ActionKind.DELETE_NODES)
    assert (len(deleted.nodes), deleted.done) == (1, True)
    assert (len(kept.nodes), kept.error) == (1, f"{kept.nodes[0]}: the cloud's minimum")
    assert {*deleted.nodes, *kept.nodes} == set(marked)


def test_a_budget_that_never_allows_keeps_its_node_for_now_and_nothing_else(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW, drain_before_termination=True)
    shop.town.client.create(PODDISRUPTIONBUDGETS, BUDGET, shop.town.namespace)
    (kept, other), others = idle(shop)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for patch, where in (({"metadata": {"labels": {"app": "kept"}}}, None), ({"status": status}, "status")):
        shop.client.patch(PODS, f"on-{kept}", patch, shop.town.namespace, subresource=where)
    shop.gone(f"on-{other}")
    assert [action.nodes for action in actions(shop.scan(HARD), ActionKind.DELETE_NODES) if action.done] == [(other,)]
    for _ in range(5):
        (action,) = actions(shop.scan(60), ActionKind.REMOVE_NODES)
        assert (action.nodes, action.done, "disruption budget" in action.error) == ((kept,), False, True)
    for number in range(9):
        shop.pod(f"p{number}")
    told = shop.scan(60)
    assert [kept in action.nodes for action in actions(told, ActionKind.UNTAINT) if action.done] == [True]
    assert [action.done for action in actions(told, ActionKind.INCREASE)] == [True]
    assert {kept, *others} <= set(shop.names)


APART = {
    "name": "apart",
    "label_value": "apart",
    "cloud_provider_group_name": "apart-nodes",
}


def test_what_goes_wrong_with_one_group_stops_no_other(open_shop: Callable[..., Shop], town: Town) -> None:
    town.offer(CLOUD, CLOUD | {"name": "apart-nodes", "labels": {"customer": "apart"}, "size": 4})
    shop = open_shop(others=[APART])
    shop.guard.observe()
    shop.has(6)
    for number in range(5):
        shop.pod(f"p{number}")
    access = shop.access

    def breaks(_: Increase) -> HeadroomError | None:
        raise RuntimeError("out of order")

    shop.access = replace(access, grow=breaks)
    told = shop.scan()
    broken, apart = told.decisions
    assert (broken.group, broken.error) == ("shared", "the scan broke down: RuntimeError('out of order')")
    assert (apart.error, [action.done for action in told.actions if action.group == "apart-nodes"]) == ("", [True])
    shop.access = access
    assert [action.kind for action in shop.scan(1).actions if action.done] == [ActionKind.INCREASE]


def test_a_scan_that_breaks_down_after_it_has_asked_for_nodes_waits_for_them(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop()
    shop.town.offer(CLOUD | {"size": 3})
    shop.guard.observe()
    forced = shop.has(3)[0]
    for number in range(4):
        shop.pod(f"there-{number}")
    assert not shop.scan().actions  # and from now on it knows what is on its way by its own memory
    shop.client.patch(NODES, forced, {"spec": {"taints": [{"key": taints.FORCE, "effect": "NoSchedule"}]}})
    for number in range(5):
        shop.pod(f"p{number}")
    access = shop.access

    def breaks_once_it_has_grown() -> bool:
        if shop.target > 3:
            raise RuntimeError("out of order")
        return True

    writer = replace(access.writer, may_write=breaks_once_it_has_grown)
    shop.access = replace(access, writer=writer, actuator=shop.actuator(writer))
    told = shop.scan()
    assert "out of order" in only(told).error
    assert [action.kind for action in told.actions if action.done] == [ActionKind.INCREASE]
    shop.access = access
    assert only(shop.scan(1)).locked


def test_of_a_marked_node_whose_machine_is_gone_the_node_goes_too(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop()
    shop.guard.observe()
    shop.has(2)
    mark = {"key": taints.TO_BE_REMOVED, "value": "1", "effect": "NoSchedule"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    for name, marks, status in (("gone", [mark], {}), ("alive", [mark], ready), ("unmarked", [], {})):
        meta = {"name": name, "labels": {"customer": "shared"}}
        spec = {"providerID": f"kwok:{name}", "taints": marks}
        shop.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec})
        shop.client.patch(NODES, name, {"status": status}, subresource="status")
    deleted, kept = actions(shop.scan(), ActionKind.DELETE_NODES)
    assert (deleted.nodes, deleted.done, deleted.reason) == (("gone",), True, "its machine is gone")
    assert (deleted.from_size, deleted.to_size) == (2, 2)
    assert (kept.nodes, kept.error) == (("alive",), "alive (kwok:alive) is not in the cloud's group")
    there = {node.metadata.name for node in shop.client.list(NODES, into=Node).items}
    assert there & {"gone", "alive", "unmarked"} == {"alive", "unmarked"}


def test_a_node_the_cloud_does_not_know_keeps_no_other_from_going(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    marked, _ = idle(shop)
    shop.gone(*(f"on-{node}" for node in marked))
    stray = {"name": "stray", "labels": {"customer": "shared"}}
    mark = {"key": taints.TO_BE_REMOVED, "value": "1", "effect": "NoSchedule"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": stray, "spec": {"providerID": "x://1", "taints": [mark]}}
    shop.client.create(NODES, body)
    deleted, kept = actions(shop.scan(SOFT), ActionKind.DELETE_NODES)
    assert (sorted(deleted.nodes), deleted.done) == (marked, True)
    assert (kept.nodes, kept.error) == (("stray",), "stray (x://1) is not in the cloud's group")
    assert shop.client.get(NODES, "stray")
    assert shop.target == 2


def ours_to_write(nodes: Iterable[Node]) -> dict[str, object]:
    """What a scan could change, by node, and no controller of a real cluster does meanwhile."""
    return {
        node.metadata.name: (
            node.metadata.uid,
            [taint for taint in node.spec.taints or () if not taint.key.startswith("node.kubernetes.io/")],
            node.spec.unschedulable,
            node.metadata.labels,
        )
        for node in nodes
    }


def test_nodes_of_a_group_that_is_not_ours_stay_as_they_are_whatever_their_labels_say(
    open_shop: Callable[..., Shop], town: Town
) -> None:
    shop = open_shop(**FEW, min_nodes=2)
    town.offer(CLOUD | {"size": 2}, CLOUD | {"name": "others-nodes", "size": 3})
    shop.guard.observe()

    def others() -> list[Node]:
        return [node for node in shop.town.nodes if node.metadata.name.startswith("others-")]

    shop.has(5)
    foreign, *_ = (node.metadata.name for node in others())
    mark = {"key": taints.TO_BE_REMOVED, "value": "1", "effect": "NoSchedule"}
    shop.client.patch(NODES, foreign, {"spec": {"taints": [mark]}})
    names, before = {node.metadata.name for node in others()}, ours_to_write(others())
    for seconds in (0.0, SOFT, HARD, COOL_DOWN):
        told = shop.scan(seconds)
        assert {name for action in told.actions if action.done for name in action.nodes}.isdisjoint(names)
    for number in range(20):
        shop.pod(f"p{number}")
    assert [action.group for action in actions(shop.scan(COOL_DOWN), ActionKind.INCREASE) if action.done] == [
        "shared-nodes"
    ]
    assert ours_to_write(others()) == before
    assert town.targets()["others-nodes"] == 3


def test_an_api_server_that_fails_stops_the_scan_and_the_next_one_goes_on(
    open_shop: Callable[..., Shop], town: Town, server: ApiServer
) -> None:
    town.client = town.client.single_attempt()  # by the machine's clock, its retries would take half a minute
    shop = open_shop(**FEW)
    town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    shop.has(4)
    failing = rule("status", "/nodes/", method="PATCH", times=0, status=503)
    told = actions(shop.scan(meanwhile=lambda: server.fault(failing)), ActionKind.TAINT)
    assert [(action.done, "503" in action.error) for action in told] == [(False, True)]
    server.heal()
    assert [action.done for action in actions(shop.scan(60), ActionKind.TAINT)] == [True]
    marked = sorted(shop.marks)
    failing = rule("status", "/pods", method="GET", times=0, status=503)
    told = actions(shop.scan(SOFT, meanwhile=lambda: server.fault(failing)), ActionKind.DELETE_NODES)
    assert [action.done for action in told] == [False]
    server.heal()
    assert shop.target == 4
    assert [sorted(action.nodes) for action in actions(shop.scan(60), ActionKind.DELETE_NODES)] == [marked]


def test_a_group_that_the_cloud_does_not_have_is_left_alone_and_said(
    open_shop: Callable[..., Shop], town: Town
) -> None:
    shop = open_shop(**FEW)
    town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    shop.has(4)
    town.offer(CLOUD | {"name": "another"})
    told = shop.scan()
    assert not told.actions
    assert (
        only(told).error == "simulated: group shared-nodes: the node group exists in the registry but not in the cloud"
    )
    assert not shop.marks


@pytest.mark.parametrize(("counted", "grows"), [("off", False), ("prod", False), ("prod-and-mid", True)])
def test_a_group_grows_for_what_its_nodes_are_predicted_to_need(
    open_shop: Callable[..., Shop], counted: str, grows: bool
) -> None:
    shop = open_shop(predicted_peaks=counted)
    shop.guard.observe()
    there = shop.has(2)
    peak = NodePeaks(prod=Resources(2000, 0), mid=Resources(1000, 0), reported_at=shop.clock.now())
    peaks = dict.fromkeys(there, peak)
    for node in there:
        shop.pod(f"on-{node}", node)  # 48 %, and so are the peaks of prod; with Mid's they are 77 %
    assert [action.kind for action in shop.scan(peaks=peaks).actions] == ([ActionKind.INCREASE] if grows else [])


def test_whoever_leads_no_more_writes_nothing(open_shop: Callable[..., Shop]) -> None:
    shop = open_shop(**FEW)
    marked, _ = idle(shop)
    shop.gone(*(f"on-{node}" for node in marked))

    def deposed() -> None:
        shop.leads = False

    told = shop.scan(SOFT, meanwhile=deposed)
    assert [(action.done, action.error) for action in actions(told, ActionKind.DELETE_NODES)] == [(False, NOT_LEADING)]
    assert (shop.target, len(shop.names)) == (4, 4)
    shop.leads = True
    for number in range(9):
        shop.pod(f"p{number}")
    told = shop.scan(60, meanwhile=deposed)
    assert not any(action.done for action in told.actions)
    assert sorted(shop.marks) == marked
    assert shop.target == 4


@pytest.mark.parametrize("how", ["dry_mode", "recommend", "dry_run"])
def test_dry_it_decides_and_writes_nothing(open_shop: Callable[..., Shop], how: str) -> None:
    options: dict[str, dict[str, Any]] = {"dry_mode": {"dry_mode": True}, "recommend": {"mode": "recommend"}}
    shop = open_shop(**FEW, **options.get(how, {}))
    shop.begin(dry_run=how == "dry_run")
    shop.town.offer(CLOUD | {"size": 4})
    shop.guard.observe()
    shop.has(4)
    before = ours_to_write(shop.town.nodes)
    (action,) = shop.scan().actions
    assert (action.kind, len(action.nodes), action.done, action.error) == (ActionKind.TAINT, 2, False, "")
    for number in range(20):
        shop.pod(f"p{number}")
    told = shop.scan(COOL_DOWN)
    assert [action.kind for action in told.actions] == [ActionKind.UNTAINT, ActionKind.INCREASE]
    assert not any(action.done or action.error for action in told.actions)
    assert ours_to_write(shop.town.nodes) == before
    assert shop.target == 4


def test_pending_pods_know_of_what_a_scan_has_asked_for_and_the_other_way_round(
    open_shop: Callable[..., Shop],
) -> None:
    shop = open_shop(policy="both")
    shop.guard.observe()
    shop.has(2)
    for number in range(5):
        shop.pod(f"p{number}")
    assert shop.scan().actions[0].to_size == 4
    assert shop.town.kept().requests["shared-nodes"].nodes == 2
    shop.begin()  # and what is in the books is waited for, whoever has asked for it
    assert only(shop.scan(COOL_DOWN)).locked
    assert shop.target == 4


QUICK = {
    "scale_up_cool_down_period": "1s",
    "soft_delete_grace_period": "1s",
    "hard_delete_grace_period": "1h",
}


@pytest.fixture
def lively(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Town]:
    """With a scheduler, for whole managers."""
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    yield town
    town.close()


def quick(town: Town) -> dict[str, Any]:
    """The settings of a manager that scans all the time."""
    file = town.file.with_name("groups.yaml")
    document = yaml.safe_load(ESCALATORS)
    document["node_groups"][0] |= QUICK
    file.write_text(yaml.safe_dump(document))
    return {"node_groups": str(file), "utilization_scan_interval_seconds": 0.1}


@pytest.mark.thorough
def test_of_two_managers_one_scales_a_group_up_and_down(lively: Town) -> None:
    lively.offer(CLOUD)
    managers = [lively.manager(identity=name, leader_elect=True, **quick(lively)) for name in ("one", "two")]
    lively.pods(5, **SELECTED)
    lively.eventually_bound(5)
    assert len(lively.nodes) >= 3
    for manager in managers:
        later_rounds(manager)
    for number in range(5):
        lively.client.delete(PODS, f"p{number}", lively.namespace, grace_period_seconds=0)
    eventually(lambda: len(lively.nodes) == 1, PATIENCE_SECONDS)
    for manager in managers:
        later_rounds(manager)
    assert lively.targets() == {"shared-nodes": 1}
    assert len(lively.nodes) == 1
    told = [each for manager in managers for each in fetch(manager, "/api/v1/decisions").json()["iterations"]]
    assert {action["group"] for each in told for action in each["decisions"]} <= {"shared-nodes"}


def test_while_the_api_server_is_away_no_node_goes_and_then_all_goes_on(lively: Town, server: ApiServer) -> None:
    lively.offer(CLOUD | {"size": 4})
    lively.pods(1, cpu="100m", **SELECTED)
    manager = lively.manager(**quick(lively))
    eventually(lambda: any(taints.has_taint(node.spec.taints or (), taints.TO_BE_REMOVED) for node in lively.nodes))
    server.kill()
    server.start()
    lively.eventually_bound(1)
    # One takes pods, and another one stays where the pod happened to be on a marked one.
    eventually(lambda: 1 <= len(lively.nodes) <= 2, PATIENCE_SECONDS)
    later_rounds(manager)
    (home,) = lively.bound.values()
    assert home in [node.metadata.name for node in lively.nodes]
    eventually(lambda: lively.targets() == {"shared-nodes": len(lively.nodes)})
