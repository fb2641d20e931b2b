"""One pod on this machine: starts what is due, notices what ended, ends everything when the pod has to go."""

import functools
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from agent.metrics_advisor.processes import POD_UID_VARIABLE
from deploy.local.kubelet import confinement, containment, identity, lifecycle, probes, process, status, volumes
from deploy.local.kubelet.containment import Containment, Place
from deploy.local.kubelet.enter import Mount, Plan
from deploy.local.kubelet.environment import environment_of
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.lifecycle import Record, RestartPolicy
from deploy.local.kubelet.powers import Powers
from deploy.local.kubelet.prober import ContainerProber, Verdict
from deploy.local.kubelet.probes import Kind, Result
from deploy.local.kubelet.process import ContainerProcess, Launch, Orphaned, StartError
from deploy.local.kubelet.records import PodFile, Records
from deploy.local.kubelet.sources import Sources
from deploy.local.kubelet.status import Json, Stage
from deploy.local.kubelet.volumes import PodVolumes, VolumeError
from deploy.local.kubelet.wire import RunnableContainer, RunnablePod, command_line
from shared.api import pods
from shared.errors import HeadroomError
from shared.kube.config import SERVICE_ACCOUNT_DIR
from shared.kube.events import NORMAL, WARNING
from shared.quantity import QuantityError

logger = logging.getLogger(__name__)

_SHARED_MODE = 0o1777  # of the working directory of a pod whose containers are different users

Say = Callable[[Literal["Normal", "Warning"], str, str], None]  # an Event about the pod: type, reason, message


@dataclass(frozen=True)
class Machine:
    """What all pods of one kubelet share. Working directories, volumes and logs stand below `root`.

    `variables`: what every container finds in its environment; `probing`: runs probes.
    """

    root: Path
    records: Records
    containment: Containment
    sources: Sources
    powers: Powers
    host: Host
    variables: Mapping[str, str]
    probing: Executor

    def work_dir(self, uid: str) -> Path:
        return self.root / "work" / uid

    def volumes_dir(self, uid: str) -> Path:
        return self.root / "volumes" / uid

    def log_file(self, uid: str, container: str) -> Path:
        return self.root / "logs" / uid / f"{container}.log"


class PodRunner:
    """The processes of one pod. Not for several threads."""

    def __init__(self, pod: RunnablePod, machine: Machine, say: Say, now: float, known: PodFile | None = None) -> None:
        self._uid = pod.metadata.uid
        # The class is fixed for a pod's life, and names its cgroups.
        self._qos = known.qos if known else pods.kube_qos(pod)
        self._machine = machine
        self._say = say
        self._acknowledged_at = known.acknowledged_at if known else now
        self._since = {(c.type, c.status): c.last_transition_time or "" for c in pod.status.conditions or ()}
        self._pod = pod
        self._records: dict[str, Record] = dict(known.records) if known else {}
        self._processes: dict[str, ContainerProcess] = {}
        self._volumes = PodVolumes(machine.volumes_dir(self._uid), machine.host, machine.sources)
        self._probers: dict[str, ContainerProber] = {}
        self._stopping: dict[str, float] = {}  # containers a probe has ended, until when they may do so themselves
        self._initialized = False
        self._kill_at: float | None = None
        if known is None:  # whatever it will leave behind on this machine, the next kubelet knows of it
            self._save()
        for record in self._records.values():
            self._adopt(record)

    def sync(self, pod: RunnablePod, now: float) -> Json:
        """Moves the pod one step towards what it should be; its status now."""
        self._pod = pod
        self._reap(now)
        if self._kill_at is None and not pods.is_terminating(pod):
            self._probe(now)
            if self._has_volumes(now):
                self._start_due(now)
        # Once is for ever: a sidecar that starts again is no return to the beginning.
        self._initialized = self._initialized or status.initialized(pod, self._records)
        stage = Stage(self._records, self._initialized, self._since, self._acknowledged_at)
        reported = status.pod_status(pod, stage, host_ip=self._machine.host.ip, now=now)
        self._since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in reported["conditions"]}
        return reported

    def terminate(self, grace_seconds: float, now: float) -> bool:
        """Ends every process, first kindly, by force once `grace_seconds` are over; True when none is left."""
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

    def rest(self, now: float) -> None:
        """The node goes down in order: that its processes ended is no failure of theirs."""
        for record in list(self._records.values()):
            self._keep(lifecycle.excused(record, now))

    def forget(self) -> None:
        """Removes every trace of the pod, which has no processes any more."""
        self._machine.containment.dissolve_pod(self._qos, self._uid)
        self._machine.records.forget(self._uid)
        for directory in (self._machine.work_dir(self._uid), self._machine.volumes_dir(self._uid)):
            shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(self._machine.log_file(self._uid, "").parent, ignore_errors=True)

    def _running(self) -> list[Record]:
        return [record for record in self._records.values() if record.is_running]

    def _place(self, record: Record) -> Place:
        return Place(self._qos, self._uid, record.container_id)

    def _members(self, record: Record) -> set[int]:
        """The container's processes; the main one is among them even before it has entered its cgroup."""
        members = set(self._machine.containment.members(self._place(record)))
        main = self._processes.get(record.name)
        return members | {main.pid} if main and main.is_alive() else members

    def _adopt(self, record: Record) -> None:
        """Goes on with a process of an earlier kubelet, or ends what is left of its container."""
        if not record.is_running:
            return
        found = process.adopt(record.pid, record.process_started)
        if found is None:
            # Its start may have been cut off between the process and its cgroup.
            containment.kill_all(functools.partial(containment.marked, record.container_id))
            return
        self._processes[record.name] = found
        container = next((each for each in self._pod.all_containers if each.name == record.name), None)
        if container is not None:
            self._watch(container, record)
        logger.info("container adopted", extra={"pod": self._pod.metadata.key, "container": record.name})

    def _reap(self, now: float) -> None:
        for record in self._running():
            try:
                code = self._returncode(record)
                if code is not None:
                    self._end(record, lifecycle.exit_code(code), now)
            except Orphaned:
                self._end(record, lifecycle.SIGKILLED, now, unknown=True)

    def _returncode(self, record: Record) -> int | None:
        running = self._processes.get(record.name)
        if running is None:  # its kubelet died while it started, or it died with the machine
            raise Orphaned
        return running.returncode()

    def _end(self, record: Record, code: int, now: float, *, unknown: bool = False) -> None:
        """The container's main process is gone, and with it goes whatever it has started."""
        place = self._place(record)
        oom_killed = self._machine.containment.oom_kills(place) > 0
        containment.kill_all(functools.partial(self._members, record))
        self._machine.containment.dissolve(place)
        self._processes.pop(record.name, None)
        self._stopping.pop(record.name, None)
        prober = self._probers.pop(record.name, None)
        if prober is not None:
            prober.close()
        reason, message = lifecycle.exit_reason(code, oom_killed=oom_killed), ""
        if unknown:
            reason, message = lifecycle.UNKNOWN_EXIT, "it ended while no kubelet was there to see how"
        self._keep(lifecycle.ended(record, code=code, reason=reason, message=message, now=now))

    def _has_volumes(self, now: float) -> bool:
        """Whether containers may start; keeps the volumes fresh for as long as they may."""
        try:
            if pods.is_active(self._pod):
                self._volumes.keep(self._pod, now)
        except VolumeError as error:
            self._say(WARNING, "FailedMount", str(error))
        return self._volumes.are_ready

    def _probe(self, now: float) -> None:
        for name, prober in self._probers.items():
            if name not in self._stopping:
                for verdict in prober.step(now):
                    self._heed(verdict, self._records[name], now)
        for name, kill_at in self._stopping.items():
            if now >= kill_at:
                containment.kill_all(functools.partial(self._members, self._records[name]))

    def _heed(self, verdict: Verdict, record: Record, now: float) -> None:
        """Does what the answer of a probe asks for."""
        kind, result = verdict.kind, verdict.result
        if not verdict.answer.passed:
            self._say(WARNING, "Unhealthy", f"{kind} probe failed: {verdict.answer.detail}")
        if kind is Kind.READINESS:
            unready = record.unready if result is Result.PENDING else result is Result.FAILED
            if unready != record.unready:
                self._keep(msgspec.structs.replace(record, unready=unready))
        elif kind is Kind.STARTUP and result is Result.PASSED:
            self._keep(msgspec.structs.replace(record, unstarted=False))
        elif result is Result.FAILED:
            self._say(NORMAL, "Killing", f"Container {record.name} failed {kind.lower()} probe, will be restarted")
            grace = verdict.probe.termination_grace_period_seconds
            self._stopping[record.name] = now + (self._pod.grace_seconds if grace is None else grace)
            containment.signal_all(self._members(record), signal.SIGTERM)

    def _watch(self, container: RunnableContainer, record: Record) -> None:
        """Probes the running container from now on."""
        if not probes.probes_of(container):
            return
        running = self._processes[container.name]
        plan = confinement.inside(self._plan(container, self._place(record)), running.pid)
        execute = functools.partial(_execute, running, plan)
        prober = ContainerProber(container, self._machine.probing, execute, self._machine.host.ip)
        prober.begin(record)
        self._probers[container.name] = prober

    def _start_due(self, now: float) -> None:
        for container in self._pod.spec.init_containers or ():
            record = self._record(container)
            policy = status.policy_of(container, self._pod, init=True)
            self._start_if_due(container, record, policy, now)
            if not self._initialized and not status.init_done(container, self._records):
                return
        for container in self._pod.spec.containers:
            policy = status.policy_of(container, self._pod, init=False)
            self._start_if_due(container, self._record(container), policy, now)

    def _start_if_due(self, container: RunnableContainer, record: Record, policy: RestartPolicy, now: float) -> None:
        if not lifecycle.is_due(record, policy, now):
            return
        try:
            self._start(container, record, now)
        except (HeadroomError, QuantityError, OSError) as error:
            unusable = isinstance(error, HeadroomError) and not isinstance(error, StartError)
            reason = "CreateContainerConfigError" if unusable else "RunContainerError"
            self._say(WARNING, "Failed", f"Error: {error}")
            self._keep(lifecycle.refused(record, reason=reason, message=str(error), now=now))

    def _start(self, container: RunnableContainer, record: Record, now: float) -> None:
        place = Place(self._qos, self._uid, process.new_container_id())
        started = lifecycle.started(
            record,
            container_id=place.container_id,
            pid=0,
            process_started=0.0,
            now=now,
            has_startup_probe=container.startup_probe is not None,
            has_readiness_probe=container.readiness_probe is not None,
        )
        try:
            launch = self._launch(container, place)
            # Written first: should we die in between, the next kubelet finds an id to look for, and no second copy
            # starts.
            self._keep(started)
            running = process.start(launch)
        except (HeadroomError, QuantityError, OSError):
            self._machine.containment.dissolve(place)
            self._records[container.name] = record
            raise
        self._processes[container.name] = running
        self._keep(msgspec.structs.replace(started, pid=running.pid, process_started=running.started_at))
        self._watch(container, started)
        self._say(NORMAL, "Started", f"Started container {container.name}")

    def _launch(self, container: RunnableContainer, place: Place) -> Launch:
        machine = self._machine
        work_dir = machine.work_dir(self._uid)
        log_file = machine.log_file(self._uid, container.name)
        log_file.parent.mkdir(0o700, parents=True, exist_ok=True)
        self._make_work_dir(work_dir)
        own = {POD_UID_VARIABLE: self._uid, process.VARIABLE_CONTAINER_ID: place.container_id}
        chosen = environment_of(container, self._pod, machine.host, machine.sources)
        given = process.base_environment(self._pod.metadata.name, work_dir) | dict(machine.variables)
        environment = given | chosen | own
        mounts = self._volumes.mounts(container, self._pod, chosen)
        if not machine.powers.mounts:
            volumes.link_below(work_dir, mounts)
            self._say_unmounted(mounts)
        command = command_line(container, dict(machine.variables) | chosen)
        if not command:
            command = list(process.PAUSE_COMMAND)
            self._say(
                NORMAL,
                "NoCommand",
                f"Container {container.name} names no command and images are not run here: a pause process stands in "
                f"for image {container.image or '(none)'}",
            )
        return Launch(command, environment, log_file, self._plan(container, place, mounts))

    def _make_work_dir(self, work_dir: Path) -> None:
        """For the user of the pod's containers alone, or for all users where they differ; on the host, the folder above
        keeps everybody else out.
        """
        work_dir.parent.mkdir(0o700, parents=True, exist_ok=True)
        work_dir.mkdir(0o700, exist_ok=True)
        if self._machine.powers.users:
            users = identity.users(self._pod)
            if len(users) > 1:
                work_dir.chmod(_SHARED_MODE)
            elif (user := users.pop()) is not None:
                os.chown(work_dir, user, -1)

    def _plan(self, container: RunnableContainer, place: Place, mounts: Sequence[Mount] = ()) -> Plan:
        """What a process of the container is to become. Raises InvalidInput, QuantityError, OSError."""
        return confinement.plan_for(
            container,
            self._pod,
            self._machine.powers,
            work_dir=self._machine.work_dir(self._uid),
            procs=self._machine.containment.admit(place, container, self._pod.spec.containers),
            mounts=mounts,
        )

    def _say_unmounted(self, mounts: Sequence[Mount]) -> None:
        wanted = [mount.target for mount in mounts if mount.target != str(SERVICE_ACCOUNT_DIR)]
        if wanted:
            self._say(
                WARNING,
                "VolumesNotMounted",
                f"this kubelet may not mount: {', '.join(wanted)} can be found below the working directory only",
            )

    def _record(self, container: RunnableContainer) -> Record:
        return self._records.get(container.name) or Record(container.name)

    def _keep(self, record: Record) -> None:
        self._records[record.name] = record
        self._save()

    def _save(self) -> None:
        meta = self._pod.metadata
        self._machine.records.save(
            PodFile(self._uid, meta.namespace, meta.name, self._qos, self._acknowledged_at, self._records)
        )


def _execute(
    running: ContainerProcess, plan: Plan, command: tuple[str, ...], timeout_seconds: float
) -> tuple[int, bytes]:
    """Runs the command of a probe as if the container had started it. Raises StartError, OSError, TimeoutExpired."""
    return process.run(command, plan, running.environment(), timeout_seconds)
