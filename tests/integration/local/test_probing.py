"""Probes of real containers, over real sockets, beside a loop that never waits for them."""

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from deploy.local import ports
from deploy.local.kubelet.containment import Containment, TreeContainment
from deploy.local.kubelet.wire import (
    ContainerPort,
    ExecAction,
    HttpGetAction,
    Probe,
    RunnablePod,
    SecurityContext,
    TcpSocketAction,
)
from tests.integration.local.pods import Harness, a_pod
from tests.support import eventually

pytestmark = pytest.mark.embedded_only("no server takes part")

Run = Callable[..., Harness]

STARTED = Probe(exec=ExecAction(("test", "-e", "started")), period_seconds=1, failure_threshold=1000)
READY = Probe(exec=ExecAction(("test", "-e", "ready")), period_seconds=1, failure_threshold=1)


@pytest.fixture
def held() -> Containment:
    return TreeContainment()


@pytest.fixture
def port() -> int:
    return ports.free()


def probed(*command: str, port: int = 0, policy: str = "Always", **more: Any) -> RunnablePod:
    """A pod whose container has these probes."""
    pod = a_pod(*command, policy=policy)
    ports = (ContainerPort(name="http", container_port=port),)
    main = msgspec.structs.replace(pod.spec.containers[0], ports=ports, **more)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(main,)))


def is_ready(status: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    ready = bool(status["containerStatuses"][0]["ready"])
    assert conditions["Ready"] == str(ready)
    return ready


def serve(port: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1")


def test_a_container_is_ready_once_its_http_probe_passes_at_a_named_port(run: Run, port: int) -> None:
    probe = Probe(http_get=HttpGetAction(port="http", path="/"), period_seconds=1)
    harness = run(pod=probed(*serve(port), port=port, readiness_probe=probe)).let_time_pass()
    assert not is_ready(harness.sync())
    harness.until(is_ready)


def test_an_answer_of_404_is_no_success_and_is_said(run: Run, port: int) -> None:
    probe = Probe(http_get=HttpGetAction(port=port, path="/none"), period_seconds=1)
    harness = run(pod=probed(*serve(port), readiness_probe=probe)).let_time_pass()
    harness.until(lambda _: "statuscode: 404" in harness.messages())
    assert "Unhealthy" in harness.reasons()
    assert not is_ready(harness.sync())


def test_readiness_comes_and_goes_without_a_restart(run: Run) -> None:
    script = "touch ready; sleep 1000"
    harness = run(pod=probed("/bin/sh", "-c", script, readiness_probe=READY)).let_time_pass()
    harness.until(is_ready)
    (harness.machine.work_dir(harness.pod.metadata.uid) / "ready").unlink()
    status = harness.until(lambda status: not is_ready(status))
    assert status["containerStatuses"][0]["restartCount"] == 0


def test_a_container_that_is_not_alive_any_more_is_ended_and_started_again(run: Run, port: int) -> None:
    probe = Probe(tcp_socket=TcpSocketAction(port=port), period_seconds=1, failure_threshold=2)
    harness = run(pod=probed("sleep", "1000", liveness_probe=probe)).let_time_pass()
    status = harness.until(lambda status: status["containerStatuses"][0]["restartCount"] == 1)
    assert "terminated" in status["containerStatuses"][0]["lastState"]
    assert {"Unhealthy", "Killing"} <= set(harness.reasons())


def test_one_that_ignores_its_end_is_ended_by_force(run: Run, port: int) -> None:
    probe = Probe(
        tcp_socket=TcpSocketAction(port=port),
        period_seconds=1,
        failure_threshold=1,
        termination_grace_period_seconds=2,
    )
    stubborn = "trap '' TERM; touch started; while :; do sleep 0.1; done"
    command = ("/bin/sh", "-c", stubborn)
    pod = probed(*command, policy="Never", startup_probe=STARTED, liveness_probe=probe)
    status = run(pod=pod).let_time_pass().until(lambda status: status["phase"] == "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_slow_start_is_waited_for_before_anything_else_is_asked(run: Run) -> None:
    never = Probe(exec=ExecAction(("false",)), period_seconds=1, failure_threshold=1)
    harness = run(pod=probed("sleep", "1000", startup_probe=STARTED, liveness_probe=never)).let_time_pass()
    harness.until(lambda _: "Startup probe failed" in harness.messages())
    assert "Liveness" not in harness.messages()
    assert not harness.container()["started"]
    (harness.machine.work_dir(harness.pod.metadata.uid) / "started").touch()
    harness.until(lambda status: "Liveness probe failed" in harness.messages())


def test_a_command_that_hangs_holds_up_nothing_and_is_ended(run: Run) -> None:
    probe = Probe(exec=ExecAction(("sleep", "999")), period_seconds=1, timeout_seconds=1)
    harness = run(pod=probed("sleep", "1000", readiness_probe=probe)).let_time_pass()
    harness.until(lambda _: len(harness.pids()) == 2)  # whoever waited for it would see one that is ended
    harness.until(lambda _: "timed out" in harness.messages())
    eventually(lambda: len(harness.pids()) == 1)


def test_a_command_runs_where_and_as_whom_its_container_does(run: Run) -> None:
    harness = run(*("sleep", "1000"))
    if not (harness.machine.powers.mounts and harness.machine.powers.users):
        pytest.skip("needs another user and mounts")
    script = 'test $(id -u) = 65532 && test "$GREETING" && ! touch /tmp/x 2>/dev/null && ! touch x 2>/dev/null'
    probe = Probe(exec=ExecAction(("/bin/sh", "-c", script)), period_seconds=1)
    context = SecurityContext(run_as_user=65532, read_only_root_filesystem=True)
    run(pod=probed("sleep", "1000", readiness_probe=probe, security_context=context)).let_time_pass().until(is_ready)


def test_the_next_kubelet_goes_on_with_what_was_ready(run: Run) -> None:
    first = run(pod=probed("/bin/sh", "-c", "touch ready; sleep 1000", readiness_probe=READY)).let_time_pass()
    first.until(is_ready)
    second = run(pod=first.pod)
    assert is_ready(second.sync())
    (second.machine.work_dir(first.pod.metadata.uid) / "ready").unlink()
    second.let_time_pass().until(lambda status: not is_ready(status))
