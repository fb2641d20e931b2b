"""One pod on this machine: starts due containers, notices ended ones, ends all of them when the pod terminates."""

import functools
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.metrics_advisor.processes import POD_UID_VARIABLE
from deploy.local.kubelet import containment, lifecycle, process, status
from deploy.local.kubelet.containment import Containment, Place
from deploy.local.kubelet.lifecycle import ContainerRecord
from deploy.local.kubelet.process import ProcessLaunch, StartError
from deploy.local.kubelet.status import Json, Stage
from deploy.local.kubelet.wire import RunnableContainer, RunnablePod, command_line, environment_of
from shared.api import pods
from shared.errors import HeadroomError, InvalidInput
from shared.kube.events import NORMAL, WARNING
from shared.quantity import QuantityError

logger = logging.getLogger(__name__)

Say = Callable[[Literal["Normal", "Warning"], str, str], None]  # an Event about the pod: type, reason, message


@dataclass(frozen=True)
class KubeletHost:
    """The environment that all pods of one kubelet share. Working directories and logs are below `root`."""

    root: Path
    containment: Containment
    ip: str

    def work_dir(self, uid: str) -> Path:
        return self.root / "work" / uid

    def log_file(self, uid: str, container: str) -> Path:
        return self.root / "logs" / uid / f"{container}.log"


class PodRunner:
    """The processes of one pod. Not thread-safe."""

    def __init__(self, pod: RunnablePod, machine: KubeletHost, say: Say, now: float) -> None:
        self._uid = pod.metadata.uid
        # The QoS class never changes during a pod's life, and is part of its cgroups' names.
        self._qos = pods.kube_qos(pod)
        self._machine = machine
        self._say = say
        self._acknowledged_at = now
        self._since = {(c.type, c.status): c.last_transition_time or "" for c in pod.status.conditions or ()}
        self._pod = pod
        self._records: dict[str, ContainerRecord] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._kill_at: float | None = None

    def sync(self, pod: RunnablePod, now: float) -> Json:
        """Moves the pod one step towards its spec; returns its status."""
        self._pod = pod
        self._reap(now)
        if self._kill_at is None and not pods.is_terminating(pod):
            self._start_due(now)
        stage = Stage(self._records, self._since, self._acknowledged_at)
        reported = status.pod_status(pod, stage, host_ip=self._machine.ip, now=now)
        self._since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in reported["conditions"]}
        return reported

    def terminate(self, grace_seconds: float, now: float) -> bool:
        """Ends every process, by force after `grace_seconds`; True if no process remains."""
        if self._kill_at is None:
            self._kill_at = now + grace_seconds
            for record in self._running():
                self._say(NORMAL, "Killing", f"Stopping container {record.name}")
                containment.signal_all(self._members(record), signal.SIGTERM)
        self._kill_at = min(self._kill_at, now + grace_seconds)
        self._reap(now)
        if now >= self._kill_at:
            for record in self._running():
                containment.kill_all(functools.partial(self._members, record))
            self._reap(now)
        return not self._running()

    def forget(self) -> None:
        """Removes all files and cgroups of the pod, which has no processes any more."""
        self._machine.containment.dissolve_pod(self._qos, self._uid)
        shutil.rmtree(self._machine.work_dir(self._uid), ignore_errors=True)
        shutil.rmtree(self._machine.log_file(self._uid, "").parent, ignore_errors=True)

    def _running(self) -> list[ContainerRecord]:
        return [record for record in self._records.values() if record.is_running]

    def _place(self, record: ContainerRecord) -> Place:
        return Place(self._qos, self._uid, record.container_id)

    def _members(self, record: ContainerRecord) -> set[int]:
        """The container's processes, including the main process before it enters its cgroup."""
        members = set(self._machine.containment.members(self._place(record)))
        main = self._processes.get(record.name)
        return members | {main.pid} if main and main.poll() is None else members

    def _reap(self, now: float) -> None:
        for record in self._running():
            code = self._processes[record.name].poll()
            if code is not None:
                self._end(record, lifecycle.exit_code(code), now)

    def _end(self, record: ContainerRecord, code: int, now: float) -> None:
        """Records the end of the container's main process and ends all processes that it started."""
        place = self._place(record)
        oom_killed = self._machine.containment.oom_kills(place) > 0
        containment.kill_all(functools.partial(self._members, record))
        self._machine.containment.dissolve(place)
        self._processes.pop(record.name, None)
        reason = lifecycle.exit_reason(code, oom_killed=oom_killed)
        self._keep(lifecycle.ended(record, code=code, reason=reason, now=now))

    def _start_due(self, now: float) -> None:
        policy = status.policy_of(self._pod)
        for container in self._pod.spec.containers:
            record = self._records.get(container.name) or ContainerRecord(container.name)
            if lifecycle.is_due(record, policy, now):
                self._start(container, record, now)

    def _start(self, container: RunnableContainer, record: ContainerRecord, now: float) -> None:
        place = Place(self._qos, self._uid, process.new_container_id())
        try:
            self._processes[container.name] = process.start(self._launch(container, place))
        except (HeadroomError, QuantityError, OSError) as error:
            self._machine.containment.dissolve(place)
            unusable = isinstance(error, HeadroomError) and not isinstance(error, StartError)
            reason = "CreateContainerConfigError" if unusable else "RunContainerError"
            self._say(WARNING, "Failed", f"Error: {error}")
            self._keep(lifecycle.refused(record, reason=reason, message=str(error), now=now))
            return
        self._keep(lifecycle.started(record, container_id=place.container_id, now=now))
        self._say(NORMAL, "Started", f"Started container {container.name}")

    def _launch(self, container: RunnableContainer, place: Place) -> ProcessLaunch:
        """Raises InvalidInput, QuantityError, OSError."""
        machine = self._machine
        if self._pod.spec.init_containers:
            names = [each.name for each in self._pod.spec.init_containers]
            problem = "this kubelet starts none, and the others start only after them"
            raise InvalidInput(source="pod", field="spec.initContainers", value=names, problem=problem)
        contexts = (self._pod.spec.security_context, container.security_context)
        if os.geteuid() == 0 and any(context.run_as_non_root for context in contexts):
            problem = "pods run as the user of their kubelet here, which is root"
            source = f"container {container.name}"
            raise InvalidInput(source=source, field="securityContext.runAsNonRoot", value=True, problem=problem)
        work_dir = machine.work_dir(self._uid)
        work_dir.mkdir(0o700, parents=True, exist_ok=True)
        log_file = machine.log_file(self._uid, container.name)
        log_file.parent.mkdir(0o700, parents=True, exist_ok=True)
        own = {POD_UID_VARIABLE: self._uid, process.VARIABLE_CONTAINER_ID: place.container_id}
        base = process.base_environment(self._pod.metadata.name, work_dir)
        environment = base | environment_of(container) | own
        if container.volume_mounts:
            missing = ", ".join(mount.mount_path for mount in container.volume_mounts)
            self._say(WARNING, "VolumesNotMounted", f"Volumes are not mounted here, so these are missing: {missing}")
        command = command_line(container)
        if not command:
            command = process.PAUSE_COMMAND
            self._say(
                NORMAL,
                "NoCommand",
                f"Container {container.name} names no command and images are not run here: a pause process stands in "
                f"for image {container.image or '(none)'}",
            )
        procs = machine.containment.admit(place, container, self._pod.spec.containers)
        return ProcessLaunch(command, environment, log_file, Path(container.working_dir or work_dir), procs)

    def _keep(self, record: ContainerRecord) -> None:
        self._records[record.name] = record
