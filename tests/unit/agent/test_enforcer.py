"""Pods of Mid and Batch are kept within their bounds, in every layout, by nothing but what the table has."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from agent.enforcer import bounds, orders, status
from agent.enforcer.bounds import BoundOutcome, CgroupBound
from agent.enforcer.enforcer import RECONCILE_SECONDS, STALE_SECONDS
from agent.enforcer.orders import Orders, PodOrder, Suppress
from agent.enforcer.table import Knob
from agent.enforcer.tree import NotAllowed, Tree
from agent.enforcer.watch import FileWatch
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Driver, Version
from shared.errors import InvalidInput
from shared.names import KubeQoS
from tests.support import certain
from tests.unit.agent.bounded import MIB, Bounded, batch, mid

HELD = Suppress(cpu_milli=1500, capacity_milli=4000)


@pytest.mark.parametrize("parent", ["", "kubelet"])
@pytest.mark.parametrize("driver", list(Driver))
def test_v2_pods_and_containers_get_what_the_table_has(tmp_path: Path, driver: Driver, parent: str) -> None:
    machine = Bounded(tmp_path, Version.V2, driver, parent)
    for order in (mid(), batch()):
        machine.add(order)
    machine.order(mid(), batch())
    machine.rounds()
    names = ("cpu.weight", "cpu.max", "memory.max", "cpu.idle", "memory.oom.group")
    assert [machine.of(mid(), name) for name in names] == ["8", "40000 100000", str(64 * MIB), "0", "0"]
    assert [machine.of(batch(), name) for name in names] == ["1", "max 100000", str(128 * MIB), "1", "1"]
    inside = [machine.of(mid(), name, container=True) for name in names[:3]]
    assert inside == ["8", "40000 100000", str(64 * MIB)]
    assert machine.of(batch(), "cpu.weight", container=True) == "20"  # a quarter of 2000m
    assert machine.of(batch(), "cpu.idle", container=True) == "0"


@pytest.mark.parametrize("driver", list(Driver))
@pytest.mark.parametrize("version", [Version.V1, Version.HYBRID])
def test_v1_pods_and_containers_get_the_same_by_its_own_names(tmp_path: Path, version: Version, driver: Driver) -> None:
    machine = Bounded(tmp_path, version, driver)
    burstable = mid(KubeQoS.BURSTABLE)
    machine.add(burstable)
    machine.add(batch(), idle=False)  # an older kernel
    machine.order(burstable, batch())
    machine.rounds()
    names = ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes")
    for container in (False, True):
        found = [machine.of(burstable, name, container=container) for name in names]
        assert found == ["204" if container else "2", "40000", str(64 * MIB)]
    assert [machine.of(batch(), name) for name in names] == ["512", "-1", str(128 * MIB)]


def test_pods_beside_prod_keep_the_least_weight_and_those_with_native_requests_the_kubelets(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    low, high = batch(KubeQoS.BURSTABLE), mid(KubeQoS.BURSTABLE)
    for order in (low, high):
        machine.add(order)
    machine.order(low, high)
    machine.rounds()
    assert [machine.of(order, "cpu.weight") for order in (low, high)] == ["1", "1"]
    assert [machine.of(order, "cpu.idle") for order in (low, high)] == ["1", "0"]
    native = [msgspec.structs.replace(order, native=True) for order in (low, high)]
    for file in machine.tree.root.rglob("cpu.*"):
        if file.name in ("cpu.weight", "cpu.idle"):
            file.write_text("7\n")
    machine.order(*native)
    machine.rounds()
    for order in native:
        for name in ("cpu.weight", "cpu.idle"):
            assert [machine.of(order, name, container=inside) for inside in (False, True)] == ["7", "7"]
    assert machine.of(high, "memory.max") == str(64 * MIB)


def test_a_quota_keeps_the_period_that_the_kubelet_was_set_to(tmp_path: Path) -> None:
    machine = Bounded(tmp_path, Version.V1)
    machine.add(mid())
    for file in machine.cpu.rglob("cpu.cfs_period_us"):
        file.write_text("50000\n")
    machine.order(mid())
    machine.rounds()
    assert machine.of(mid(), "cpu.cfs_quota_us") == "20000"


def test_what_somebody_else_writes_is_written_back_and_pods_that_come_are_bounded_at_once(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.add(mid())
    machine.order(mid())
    machine.rounds()
    path = machine.tree.root / machine.tree.pod_path(mid().uid, "besteffort") / "memory.max"
    path.write_text("max\n")
    for _ in range(int(RECONCILE_SECONDS)):
        machine.order(mid())
        machine.rounds()
    assert machine.of(mid(), "memory.max") == str(64 * MIB)
    machine.add(batch())
    machine.order(mid(), batch())
    machine.rounds()
    assert machine.of(batch(), "cpu.idle") == "1"


def test_a_limit_that_is_the_kubelets_to_keep_is_left_alone(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.add(batch())
    path = machine.tree.root / machine.tree.pod_path(batch().uid, "besteffort") / "cpu.max"
    path.write_text("70000 100000\n")
    machine.order(batch())
    machine.rounds()
    assert machine.of(batch(), "cpu.max") == "70000 100000"


def test_a_pod_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.add(mid())
    (machine.tree.root / machine.tree.container_path(uid=mid().uid, qos="besteffort") / "memory.max").unlink()
    machine.order(mid(), batch())
    machine.rounds()
    told = certain(status.read(machine.status_dir))
    assert (told.failed, told.gone, told.layout) == (0, 1, "cgroup v2 systemd, kubepods.slice")
    assert machine.of(mid(), "cpu.weight", container=True) == "8"


@pytest.mark.parametrize("version", [Version.V1, Version.V2])
def test_best_effort_pods_are_held_to_what_is_left_step_by_step(tmp_path: Path, version: Version) -> None:
    machine = Bounded(tmp_path, version)
    whole = " 100000" if machine.v2 else ""
    machine.order(suppress=HELD)
    machine.rounds()
    assert machine.best_effort == f"150000{whole}"
    for milli, expected in ((1530, 150_000), (100, 10_000), (0, 2_000), (1500, 42_000), (1500, 82_000)):
        machine.order(suppress=Suppress(cpu_milli=milli, capacity_milli=4000))
        machine.rounds()
        assert machine.best_effort == f"{expected}{whole}"
    machine.order()
    machine.rounds()
    assert machine.best_effort == ("max 100000" if machine.v2 else "-1")


def test_v1_takes_its_pods_quotas_away_while_all_are_held_together(tmp_path: Path) -> None:
    machine = Bounded(tmp_path, Version.V1)
    burstable = mid(KubeQoS.BURSTABLE)
    machine.add(mid())
    machine.order(mid())
    machine.rounds()
    assert machine.of(mid(), "cpu.cfs_quota_us") == "40000"
    machine.order(mid(), suppress=HELD)
    machine.rounds()
    assert [machine.of(mid(), "cpu.cfs_quota_us", container=inside) for inside in (False, True)] == ["-1", "-1"]
    machine.add(burstable)
    machine.order(burstable, suppress=HELD)
    machine.rounds()
    assert machine.of(burstable, "cpu.cfs_quota_us") == "40000"


def test_the_quota_of_all_goes_with_the_enforcer_and_after_the_agents_last_word(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.order(suppress=HELD)
    machine.rounds(int(STALE_SECONDS))
    assert machine.best_effort == "150000 100000"
    machine.rounds()
    assert machine.best_effort == "max 100000"
    machine.order(suppress=HELD)
    machine.rounds()
    machine.enforcer.release()
    assert machine.best_effort == "max 100000"


@pytest.mark.parametrize("version", [Version.V1, Version.V2])
def test_a_quota_of_all_that_somebody_takes_away_is_written_again_at_once(tmp_path: Path, version: Version) -> None:
    with closing(FileWatch()) as watch:
        machine = Bounded(tmp_path, version, watch=watch)
        machine.order(suppress=HELD)
        machine.rounds()
        held = machine.best_effort
        while watch.wait(0):
            pass
        assert not watch.wait(0)
        quota = machine.cpu / machine.tree.class_path("besteffort") / ("cpu.max" if machine.v2 else "cpu.cfs_quota_us")
        quota.write_text("max 100000\n" if machine.v2 else "-1\n")
        assert watch.wait(10)
        machine.enforcer.restore()
        assert machine.best_effort == held
        machine.order()
        machine.rounds()
        machine.enforcer.restore()
        assert machine.best_effort != held
    told = certain(status.read(machine.status_dir))
    assert told.restored == 1


def test_one_that_starts_after_a_kill_lets_go_when_nobody_speaks(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.order(suppress=HELD)
    machine.rounds()
    (machine.orders_dir / orders.FILE).unlink()
    machine.enforcer = machine.started()
    machine.rounds(int(STALE_SECONDS) - 1)
    assert machine.best_effort == "150000 100000"
    machine.rounds()
    assert machine.best_effort == "max 100000"


def test_orders_of_before_a_reboot_count_for_nothing(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.add(mid())
    ahead = Orders(version=orders.VERSION, at=machine.clock.monotonic() + 100, pods=(mid(),), suppress=HELD)
    orders.write(machine.orders_dir, ahead)
    machine.rounds(3)
    assert machine.of(mid(), "cpu.weight") == "1"
    assert machine.best_effort == "max 100000"


def told(machine: Bounded, order: PodOrder) -> dict[tuple[str, str], CgroupBound]:
    """What is said of a pod's bounds, by file, and whether it is the container's."""
    found = certain(bounds.read(machine.status_dir))
    said = found.pods[order.uid]
    assert (said.key, said.tier, said.omitted) == (order.key, order.tier, 0)
    pod = machine.tree.pod_path(order.uid, "besteffort")
    return {("pod" if each.cgroup == pod else "container", each.file): each for each in said.bounds}


def test_each_bound_is_told_with_what_it_follows_from_and_when_and_over_what_it_was_written(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.add(mid())
    machine.order(mid())
    machine.rounds()
    first, written_at = told(machine, mid()), machine.clock.monotonic()
    assert first.keys() == {
        (of, file) for of in ("pod", "container") for file in ("cpu.weight", "cpu.max", "memory.max")
    }
    assert {each.outcome for each in first.values()} == {BoundOutcome.WRITTEN}
    assert {each.at for each in first.values()} == {written_at}
    quota = first["pod", "cpu.max"]
    assert (quota.term, quota.amount, quota.unit) == ("mid-cpu limit", 400, "milli")
    assert (quota.before, quota.value) == ("max 100000", "40000 100000")
    weight = first["container", "cpu.weight"]
    assert (weight.term, weight.amount, weight.value) == ("mid-cpu requested", 200, "8")
    for _ in range(int(RECONCILE_SECONDS)):
        machine.order(mid())
        machine.rounds()
    assert told(machine, mid()) == first  # it stands, since when it was written
    machine.enforcer = machine.started()
    machine.rounds()
    assert {each.outcome for each in told(machine, mid()).values()} == {BoundOutcome.STANDS}
    machine.order(batch())
    machine.rounds()
    left = certain(bounds.read(machine.status_dir))
    assert left.pods.keys() == {batch().uid}


@pytest.mark.parametrize("version", [Version.V1, Version.V2])
def test_a_cgroup_that_vanishes_between_read_and_write_is_gone_and_what_the_kernel_refuses_is_told(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Bounded(tmp_path, version)
    machine.add(mid())
    machine.order(mid())
    real, files = os.pwrite, {}

    def write(file: int, data: bytes, offset: int) -> int:
        name = Path(os.readlink(f"/proc/self/fd/{file}"))
        code = {"memory": errno.ENODEV, "cpu.max": errno.EINVAL, "cpu.cfs_quota_us": errno.EINVAL}
        for prefix, number in code.items():
            if name.name.startswith(prefix):
                files[name.name] = number
                raise OSError(number, os.strerror(number))
        return real(file, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", write)
        machine.rounds()
    found = told(machine, mid())
    by_outcome = {
        outcome: {file for (_, file), each in found.items() if each.outcome is outcome} for outcome in BoundOutcome
    }
    assert len(files) == 2
    assert by_outcome[BoundOutcome.GONE] == {name for name, number in files.items() if number == errno.ENODEV}
    assert by_outcome[BoundOutcome.REFUSED] == {name for name, number in files.items() if number == errno.EINVAL}
    assert all("Invalid argument" in each.problem for each in found.values() if each.outcome is BoundOutcome.REFUSED)
    said = certain(status.read(machine.status_dir))
    assert (said.gone, said.failed) == (2, 2)
    machine.clock.advance(RECONCILE_SECONDS)
    machine.order(mid())
    machine.rounds()
    assert {each.outcome for each in told(machine, mid()).values()} == {BoundOutcome.WRITTEN}


def test_what_is_told_of_bounds_is_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    bound = CgroupBound(
        cgroup="x" * 100, file="f", term="t", amount=1, unit="milli", value="v", outcome=BoundOutcome.WRITTEN, at=1.0
    )
    pod = bounds.of_pod("d/p", "mid", [bound] * (bounds.MOST_BOUNDS + 3))
    assert (len(pod.bounds), pod.omitted) == (bounds.MOST_BOUNDS, 3)
    body = bounds.encoded({str(uid): pod for uid in range(1000)})
    assert len(body) <= bounds.MOST_BYTES
    bounds.write(tmp_path, body)
    read = certain(bounds.read(tmp_path))
    assert len(read.pods) + read.omitted == 1000
    assert len(read.pods) >= 15
    for garbage in (b"", b"{", b"[" * 100_000, b" " * (bounds.MOST_BYTES + 5), b'{"pods": {"a": 1}}'):
        (tmp_path / bounds.FILE).write_bytes(garbage)
        assert bounds.read(tmp_path) is None


def test_a_kubelets_tree_that_is_made_later_or_elsewhere_is_found(tmp_path: Path) -> None:
    machine = Bounded(tmp_path, parent="kubelet")
    shutil.rmtree(machine.tree.root / machine.tree.parent)
    machine.order(mid())
    machine.rounds()
    said = certain(status.read(machine.status_dir))
    assert (said.layout, said.failed) == ("", 0)
    machine.add(mid())
    for level in ("besteffort", "burstable"):
        machine.make(machine.tree.class_path(level))
    machine.clock.advance(RECONCILE_SECONDS)
    machine.order(mid())
    machine.rounds()
    assert machine.of(mid(), "memory.max") == str(64 * MIB)


class Killed(BaseException):
    """No one catches it."""


@pytest.mark.parametrize("version", [Version.V1, Version.V2])
def test_killed_before_any_write_the_next_one_ends_where_this_one_would_have(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine_at(where: str) -> Bounded:
        (tmp_path / where).mkdir()
        made = Bounded(tmp_path / where, version)
        for order in (mid(), batch()):
            made.add(order)
        made.order(mid(), batch(), suppress=HELD)
        return made

    whole = machine_at("whole")
    whole.rounds()
    told = certain(status.read(whole.status_dir))
    assert told.written > 8
    real = os.pwrite
    for survived in range(told.written):
        machine, left = machine_at(str(survived)), [survived]

        def write(file: int, data: bytes, offset: int, left: list[int] = left) -> int:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(file, data, offset)

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", write)
            with pytest.raises(Killed):
                machine.rounds()
        machine.enforcer = machine.started()
        machine.rounds()
        assert machine.files() == whole.files()


def test_no_link_is_followed(tmp_path: Path) -> None:
    machine = Bounded(tmp_path)
    machine.add(mid())
    outside = tmp_path / "outside"
    outside.mkdir()
    pod = machine.tree.root / machine.tree.pod_path(mid().uid, "besteffort")
    (outside / "cpu.weight").write_text("77\n")
    (pod / "cpu.weight").unlink()
    (pod / "cpu.weight").symlink_to(outside / "cpu.weight")
    machine.add(batch())
    elsewhere = machine.tree.root / machine.tree.pod_path(batch().uid, "besteffort")
    elsewhere.rename(outside / "pod")
    elsewhere.symlink_to(outside / "pod")
    machine.order(mid(), batch())
    machine.rounds()
    assert (outside / "cpu.weight").read_text() == "77\n"
    assert (outside / "pod" / "cpu.idle").read_text() == "0\n"
    told = certain(status.read(machine.status_dir))
    assert told.failed > 0


def test_nothing_but_pods_of_the_kubelet_can_be_written(tmp_path: Path) -> None:
    machine = Bounded(tmp_path, driver=Driver.CGROUPFS)
    machine.make("system.slice/sshd.service")
    machine.make("kubepods")
    layout = certain(cgroups.detect(machine.tree.root))
    tree = Tree(layout)
    for path in (
        "",
        "kubepods",
        "kubepods/burstable",
        "system.slice/sshd.service",
        "kubepods/../system.slice/sshd.service",
        "kubepods//burstable",
        "/kubepods/burstable",
        "kubepodsx/pod1",
    ):
        with pytest.raises(NotAllowed):
            tree.set(path, Knob.QUOTA, 100)
    with pytest.raises(NotAllowed):
        tree.set("kubepods/besteffort", Knob.IDLE, 1)  # it would lock the weight that the kubelet writes
    machine.add(mid())
    beyond = [(Knob.IDLE, 2), (Knob.WEIGHT, -1), (Knob.WEIGHT, 1 << 20), (Knob.QUOTA, -2), (Knob.MEMORY, 1 << 60)]
    for knob, value in beyond:
        with pytest.raises(NotAllowed):
            tree.set(machine.tree.pod_path(mid().uid, "besteffort"), knob, value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"),
        ({"another": 1}, "(document)"),
        ({"pods": [{"uid": "../../x", "qos": "BestEffort", "tier": "mid"}]}, "uid"),
        ({"pods": [{"uid": "a", "qos": "Best", "tier": "mid"}]}, "(document)"),
        ({"pods": [{"uid": "a", "qos": "BestEffort", "tier": "mid", "limit_milli": 0}]}, "limit_milli"),
        ({"pods": [{"uid": "a", "qos": "BestEffort", "tier": "mid", "limit_bytes": 4096}]}, "limit_bytes"),
        ({"pods": [{"uid": "a", "qos": "BestEffort", "tier": "mid", "cpu_milli": -1}]}, "cpu_milli"),
        (
            {"pods": [{"uid": "a", "qos": "BestEffort", "tier": "mid", "containers": [{"id": "containerd://../x"}]}]},
            "containers.id",
        ),
        ({"suppress": {"cpu_milli": 1, "capacity_milli": 1 << 30}}, "suppress.capacity_milli"),
    ],
)
def test_orders_that_cannot_be_are_refused_by_their_field_and_the_last_good_ones_stay(
    tmp_path: Path, change: dict[str, object], field: str
) -> None:
    machine = Bounded(tmp_path)
    machine.add(mid())
    machine.order(mid())
    machine.rounds()
    given = {"version": 1, "at": machine.clock.monotonic()} | change
    (machine.orders_dir / orders.FILE).write_text(json.dumps(given))
    with pytest.raises(InvalidInput) as refused:
        orders.read(machine.orders_dir)
    assert field in refused.value.field
    machine.rounds(int(RECONCILE_SECONDS))
    told = certain(status.read(machine.status_dir))
    assert (told.pods, told.refused_orders > 0) == (1, True)


def test_a_file_that_is_torn_huge_a_link_or_a_pipe_is_refused(tmp_path: Path) -> None:
    file = tmp_path / orders.FILE
    assert orders.read(tmp_path) is None
    file.write_text('{"version": 1, "at": 1.0, "po')
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "else")
    os.mkfifo(pipe)
    makes: list[Callable[[], object]] = [
        lambda: file.write_text("[" * 100_000),
        lambda: file.write_bytes(b" " * (orders.MOST_BYTES + 1)),
        lambda: os.replace(link, file),
        lambda: os.replace(pipe, file),
    ]
    for make in makes:
        with pytest.raises(InvalidInput):
            orders.read(tmp_path)
        make()
    with pytest.raises(InvalidInput):
        orders.read(tmp_path)
