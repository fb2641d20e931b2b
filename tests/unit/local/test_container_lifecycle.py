"""Restarts, backoff, phases and conditions, as plain values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.kubelet import lifecycle, limits, status
from deploy.local.kubelet.lifecycle import ContainerRecord, Exit, RestartPolicy
from deploy.local.kubelet.limits import CgroupLimits
from deploy.local.kubelet.status import Stage
from deploy.local.kubelet.wire import (
    RunnableContainer,
    RunnableMeta,
    RunnablePod,
    RunnableSpec,
    command_line,
)
from shared.api.core import Container, Quantities, ResourceRequirements

ALWAYS, ON_FAILURE, NEVER = RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE, RestartPolicy.NEVER
NOW = 1_000_000.0


def running(name: str = "main") -> ContainerRecord:
    return ContainerRecord(name, container_id="id", started_at=NOW)


def ended(code: int, name: str = "main") -> ContainerRecord:
    return lifecycle.ended(running(name), code=code, reason="Error", now=NOW + 1)


def a_pod(*, policy: str = "Always") -> RunnablePod:
    spec = RunnableSpec(containers=(RunnableContainer(name="main"),), restart_policy=policy)
    return RunnablePod(RunnableMeta(name="p", namespace="default", uid="uid"), spec)


def stage(*records: ContainerRecord) -> Stage:
    return Stage({record.name: record for record in records}, since={}, acknowledged_at=NOW)


@pytest.mark.parametrize(
    ("code", "policy", "again"),
    [
        (0, ALWAYS, True),
        (1, ALWAYS, True),
        (0, ON_FAILURE, False),
        (1, ON_FAILURE, True),
        (0, NEVER, False),
        (1, NEVER, False),
    ],
)
def test_the_restart_policy_decides_whether_a_container_runs_again(
    code: int, policy: RestartPolicy, again: bool
) -> None:
    assert lifecycle.runs_again(ended(code), policy) is again
    assert lifecycle.is_final(ended(code), policy) is not again


def test_the_first_restart_comes_at_once_and_later_ones_ever_later() -> None:
    assert [lifecycle.backoff_seconds(failures) for failures in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_container_that_ran_long_is_forgiven_its_failures() -> None:
    record = ended(1)
    for _ in range(4):
        record = lifecycle.started(record, container_id="next", now=NOW)
        record = lifecycle.ended(record, code=1, reason="Error", now=NOW + 1)
    assert record.retry_at > NOW + 1
    record = lifecycle.started(record, container_id="next", now=NOW)
    late = NOW + lifecycle.CALM_SECONDS
    assert lifecycle.ended(record, code=1, reason="Error", now=late).retry_at == late


@given(failures=st.integers(0, 10_000))
def test_backoff_grows_but_never_beyond_five_minutes(failures: int) -> None:
    assert lifecycle.backoff_seconds(failures) <= lifecycle.backoff_seconds(failures + 1) <= 300


def test_a_restart_is_counted_and_remembers_the_last_end() -> None:
    again = lifecycle.started(ended(3), container_id="new", now=NOW + 2)
    assert again.restarts == 1
    assert again.is_running
    assert again.previous_exit == Exit(3, "Error", NOW, NOW + 1, "id")


@pytest.mark.parametrize(("returncode", "code"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_death_by_a_signal_has_a_code_as_in_a_shell(returncode: int, code: int) -> None:
    assert lifecycle.exit_code(returncode) == code


@pytest.mark.parametrize(
    ("policy", "records", "phase"),
    [
        ("Always", (), "Pending"),
        ("Always", (running(),), "Running"),
        ("Always", (ended(0),), "Running"),
        ("Never", (ended(0),), "Succeeded"),
        ("Never", (ended(1),), "Failed"),
        ("OnFailure", (ended(1),), "Running"),
        ("OnFailure", (ended(0),), "Succeeded"),
    ],
)
def test_the_phase_follows_the_containers_and_the_policy(
    policy: str, records: tuple[ContainerRecord, ...], phase: str
) -> None:
    pod = a_pod(policy=policy)
    assert status.phase(pod, stage(*records)) == phase


def ready_of(pod: RunnablePod, *records: ContainerRecord) -> tuple[str, bool]:
    """The pod's Ready condition, and what its container's status says."""
    found = status.pod_status(pod, stage(*records), host_ip="127.0.0.1", now=NOW)
    conditions = {each["type"]: each["status"] for each in found["conditions"]}
    return conditions["Ready"], found["containerStatuses"][0]["ready"]


def test_a_pod_is_ready_while_its_containers_run() -> None:
    assert ready_of(a_pod(), running()) == ("True", True)
    assert ready_of(a_pod(), ended(1)) == ("False", False)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    pod = a_pod()
    first = status.pod_status(pod, stage(running()), host_ip="127.0.0.1", now=NOW)
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in first["conditions"]}
    same = Stage({"main": running()}, since, NOW)
    changed = Stage({"main": ended(0)}, since, NOW)
    assert status.pod_status(pod, same, host_ip="127.0.0.1", now=NOW + 60) == first
    later = status.pod_status(pod, changed, host_ip="127.0.0.1", now=NOW + 60)
    ready = {each["type"]: each for each in later["conditions"]}["Ready"]
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", "1970-01-12T13:47:40Z")


def test_arguments_without_a_command_belong_to_an_image_that_is_not_run() -> None:
    assert not command_line(RunnableContainer(args=("serve",)))


def sized(requests: Quantities | None = None, limits: Quantities | None = None) -> Container:
    return Container(resources=ResourceRequirements(requests=requests, limits=limits))


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (sized(), CgroupLimits(2)),
        (sized({"cpu": "1"}), CgroupLimits(1024)),
        (sized({"cpu": "250m"}, {"cpu": "500m", "memory": "1Gi"}), CgroupLimits(256, 50_000, 1 << 30)),
        (sized(None, {"cpu": "2"}), CgroupLimits(2048, 200_000)),
        (sized(None, {"cpu": "1m"}), CgroupLimits(2, 1000)),
    ],
)
def test_requests_and_limits_in_the_kernels_units(container: Container, expected: CgroupLimits) -> None:
    assert limits.of_container(container) == expected


def test_a_pod_is_limited_only_if_all_its_containers_are() -> None:
    limited = sized(None, {"cpu": "1", "memory": "1Gi"})
    assert limits.of_pod([limited, limited]) == CgroupLimits(2048, 200_000, 2 << 30)
    assert limits.of_pod([limited, sized()]) == CgroupLimits(1026)


def test_weights_of_v2_span_the_shares_of_v1() -> None:
    assert limits.files(CgroupLimits(2), v2=True) == {"cpu.weight": "1", "cpu.max": "max 100000"}
    assert limits.files(CgroupLimits(262_144, 5000), v2=True) == {"cpu.weight": "10000", "cpu.max": "5000 100000"}
    assert limits.files(CgroupLimits(1024), v2=False) == {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1"}
