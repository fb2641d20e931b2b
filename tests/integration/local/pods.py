"""One pod at a time, run as the kubelet runs it."""

import secrets
import time
from collections.abc import Callable
from typing import Any

import psutil

from deploy.local.kubelet.runner import KubeletHost, PodRunner
from deploy.local.kubelet.wire import EnvVar, RunnableContainer, RunnableMeta, RunnablePod, RunnableSpec
from shared.api.core import Quantities, ResourceRequirements
from tests.support import eventually


class Harness:
    """A runner, its Events, and the time it believes in, which stands still."""

    def __init__(self, pod: RunnablePod, machine: KubeletHost) -> None:
        self.pod, self.machine = pod, machine
        self.events: list[tuple[str, str, str]] = []
        self.now = time.time()
        self.runner = PodRunner(pod, machine, lambda *event: self.events.append(event), self.now)

    def sync(self) -> dict[str, Any]:
        return self.runner.sync(self.pod, self.now)

    def container(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sync()["containerStatuses"][0]
        return found

    def pids(self) -> list[int]:
        """Every living process that carries the pod's uid, whoever its parent is."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HEADROOM_POD_UID") == self.pod.metadata.uid:
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            status = self.sync()
            return status if condition(status) else None

        found = eventually(look)
        assert found is not None
        return found

    def log(self, container: str = "main") -> str:
        path = self.machine.log_file(self.pod.metadata.uid, container)
        return path.read_text() if path.exists() else ""

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


def a_pod(
    *command: str,
    policy: str = "Always",
    limits: Quantities | None = None,
    requests: Quantities | None = None,
) -> RunnablePod:
    main = RunnableContainer(
        name="main",
        image="image:1",
        command=command or None,
        env=(EnvVar("WHO", "world"), EnvVar("GREETING", "hello world")),
        resources=ResourceRequirements(limits=limits, requests=requests),
    )
    meta = RunnableMeta(name="p", namespace="default", uid=secrets.token_hex(8))
    return RunnablePod(meta, RunnableSpec(containers=(main,), restart_policy=policy))
