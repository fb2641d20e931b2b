"""Pods as real processes, in real cgroups where this machine allows them and as process trees everywhere."""

import os
import signal
import sys
from collections.abc import Callable

import msgspec
import pytest

from deploy.local.kubelet import containment
from deploy.local.kubelet.containment import CgroupContainment, Containment
from deploy.local.kubelet.wire import (
    EnvVar,
    SecurityContext,
    VolumeMount,
)
from shared.api.core import Container, Quantities
from tests.integration.local.pods import Harness, a_pod
from tests.support import eventually

pytestmark = pytest.mark.embedded_only("no server takes part")

SLEEP = ("sleep", "1000")


def test_a_command_runs_with_its_environment_and_its_output_is_kept(run: Callable[..., Harness]) -> None:
    harness = run("/bin/sh", "-c", "echo $GREETING $HOME; pwd", policy="Never")
    status = harness.until(lambda status: status["phase"] == "Succeeded")
    work_dir = str(harness.machine.work_dir(harness.pod.metadata.uid))
    assert harness.log().splitlines() == [f"hello world {work_dir}", work_dir]
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")


def test_a_failure_is_reported_with_its_code_and_not_repeated_when_the_policy_is_never(
    run: Callable[..., Harness],
) -> None:
    status = run("/bin/sh", "-c", "exit 3", policy="Never").until(lambda status: status["phase"] == "Failed")
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (3, "Error")


def test_a_container_that_keeps_failing_is_started_again_ever_later(run: Callable[..., Harness]) -> None:
    harness = run("/bin/sh", "-c", "exit 3")
    status = harness.until(lambda status: status["containerStatuses"][0]["restartCount"] == 1)
    status = harness.until(lambda status: "waiting" in status["containerStatuses"][0]["state"])
    waiting = status["containerStatuses"][0]
    assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert waiting["lastState"]["terminated"]["exitCode"] == 3
    harness.now += 11
    assert harness.container()["restartCount"] == 2


def test_a_pod_with_init_containers_is_refused_in_words(run: Callable[..., Harness]) -> None:
    pod = a_pod(*SLEEP)
    spec = msgspec.structs.replace(pod.spec, init_containers=(Container(name="init"),))
    waiting = run(pod=msgspec.structs.replace(pod, spec=spec)).container()["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "spec.initContainers" in waiting["message"]


def test_a_command_that_does_not_exist_is_refused_in_words(run: Callable[..., Harness]) -> None:
    harness = run("/no/such/thing")
    waiting = harness.container()["state"]["waiting"]
    assert waiting["reason"] == "RunContainerError"
    assert "/no/such/thing" in waiting["message"]
    assert harness.reasons() == ["Failed"]


def test_a_container_that_is_refused_is_said_to_be_and_leaves_no_cgroup(
    run: Callable[..., Harness], held: Containment
) -> None:
    pod = a_pod(*SLEEP)
    unknown = EnvVar("COLOUR", value_from={"secretKeyRef": {"name": "s", "key": "k"}})
    containers = (msgspec.structs.replace(pod.spec.containers[0], env=(unknown,)),)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))
    waiting = run(pod=pod).container()["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "env COLOUR" in waiting["message"]
    tops = held._tops() if isinstance(held, CgroupContainment) else ()
    assert [path for top in tops for path in top.glob("kubepods/*/pod*/*/")] == []


def test_a_pod_that_must_not_run_as_root_runs_only_below_a_kubelet_that_is_not_root(
    run: Callable[..., Harness],
) -> None:
    pod = a_pod(*SLEEP)
    spec = msgspec.structs.replace(pod.spec, security_context=SecurityContext(run_as_non_root=True))
    harness = run(pod=msgspec.structs.replace(pod, spec=spec))
    if os.geteuid() == 0:
        assert "runAsNonRoot" in harness.container()["state"]["waiting"]["message"]
    else:
        harness.until(lambda status: status["phase"] == "Running")


def test_a_volume_is_said_to_be_missing(run: Callable[..., Harness]) -> None:
    pod = a_pod(*SLEEP)
    containers = (msgspec.structs.replace(pod.spec.containers[0], volume_mounts=(VolumeMount("/data"),)),)
    harness = run(pod=msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers)))
    harness.until(lambda status: status["phase"] == "Running")
    assert (
        "Warning",
        "VolumesNotMounted",
        "Volumes are not mounted here, so these are missing: /data",
    ) in harness.events


def test_without_a_command_a_pause_process_runs_and_an_event_says_so(run: Callable[..., Harness]) -> None:
    harness = run()
    assert "running" in harness.container()["state"]
    assert eventually(harness.pids)
    reasons = {reason: message for _, reason, message in harness.events}
    assert "image:1" in reasons["NoCommand"]


def test_everything_a_container_started_ends_with_it(run: Callable[..., Harness]) -> None:
    # A daemon in a session of its own, which ignores SIGTERM: only the cgroup or the variable finds it.
    stubborn = "trap '' TERM; (trap '' TERM; exec setsid sleep 1001) & exec sleep 1000"
    harness = run("/bin/sh", "-c", stubborn)
    harness.sync()
    eventually(lambda: len(harness.pids()) >= 2)
    assert not harness.runner.terminate(5, harness.now)
    harness.now += 5
    assert harness.runner.terminate(5, harness.now)
    assert harness.pids() == []


def test_a_polite_process_ends_on_sigterm_long_before_the_grace_is_over(run: Callable[..., Harness]) -> None:
    harness = run(*SLEEP)
    harness.sync()
    eventually(lambda: harness.runner.terminate(30, harness.now))
    assert harness.container()["state"]["terminated"]["exitCode"] == 128 + signal.SIGTERM


def test_requests_and_limits_reach_the_cgroup(run: Callable[..., Harness], held: Containment) -> None:
    if not isinstance(held, CgroupContainment):
        pytest.skip("limits need cgroups")
    limits: Quantities = {"cpu": "500m", "memory": "64Mi"}
    harness = run(pod=a_pod(*SLEEP, limits=limits, requests={"cpu": "250m"}))
    harness.sync()
    text = " ".join(
        path.read_text().strip()
        for top in held._tops()
        for name in ("cpu.shares", "cpu.cfs_quota_us", "cpu.weight", "cpu.max", "memory.limit_in_bytes", "memory.max")
        for path in top.glob(f"kubepods/burstable/pod*/*/{name}")
    )
    assert str(64 * 2**20) in text
    assert "50000" in text
    assert "256" in text or "10" in text.split()


def test_a_container_beyond_its_memory_limit_is_reported_as_oom_killed(
    run: Callable[..., Harness], held: Containment
) -> None:
    if not isinstance(held, CgroupContainment):
        pytest.skip("limits need cgroups")
    hungry = "x = bytearray(1 << 28)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(100)"
    harness = run(pod=a_pod(sys.executable, "-c", hungry, limits={"memory": "64Mi"}, policy="Never"))
    status = harness.until(lambda status: status["phase"] == "Failed")
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")


def test_clearing_a_dead_clusters_cgroups_ends_its_processes(run: Callable[..., Harness], held: Containment) -> None:
    if not isinstance(held, CgroupContainment):
        pytest.skip("needs cgroups")
    harness = run(*SLEEP)
    harness.sync()
    eventually(harness.pids)
    for top in held._tops():
        containment.clear(top)
        assert not top.exists()
    eventually(lambda: not harness.pids())
