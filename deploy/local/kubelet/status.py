"""A pod's status as the kubelet reports it, from the records of its containers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.local.kubelet import lifecycle
from deploy.local.kubelet.lifecycle import Exit, Record, RestartPolicy
from deploy.local.kubelet.wire import RunnableContainer, RunnablePod
from shared import durations
from shared.api import pods

CONTAINER_ID_SCHEME = "headroom://"

Json = dict[str, Any]  # a part of a Kubernetes object to be sent


@dataclass(frozen=True)
class Stage:
    """The state of a pod: its containers' records by name, and since when (RFC 3339) each condition has its status."""

    records: Mapping[str, Record]
    initialized: bool
    since: Mapping[tuple[str, str], str]
    acknowledged_at: float

    def of(self, container: RunnableContainer) -> Record:
        return self.records.get(container.name) or Record(container.name)


def policy_of(container: RunnableContainer, pod: RunnablePod, *, init: bool) -> RestartPolicy:
    """A sidecar (an init container that always restarts) has its own policy; other init containers run to success."""
    if init and container.restart_policy == RestartPolicy.ALWAYS:
        return RestartPolicy.ALWAYS
    policy = RestartPolicy(pod.spec.restart_policy or RestartPolicy.ALWAYS)
    return RestartPolicy.ON_FAILURE if init and policy is RestartPolicy.ALWAYS else policy


def initialized(pod: RunnablePod, records: Mapping[str, Record]) -> bool:
    """Whether every init container has succeeded, and every sidecar has started."""
    return all(init_done(container, records) for container in pod.spec.init_containers or ())


def init_done(container: RunnableContainer, records: Mapping[str, Record]) -> bool:
    """Whether the containers after this init container may start."""
    record = records.get(container.name)
    if record is None:
        return False
    if container.restart_policy == RestartPolicy.ALWAYS:
        return record.has_started
    return _ended_well(record)


def phase(pod: RunnablePod, stage: Stage) -> str:
    """Kubernetes' phase: Pending until init is complete and a container runs; final once none will run again."""
    for container in pod.spec.init_containers or ():
        record = stage.of(container)
        if lifecycle.is_final(record, policy_of(container, pod, init=True)) and record.exit and record.exit.code:
            return "Failed"
    records = [stage.of(container) for container in pod.spec.containers]
    policy = policy_of(pod.spec.containers[0], pod, init=False) if pod.spec.containers else RestartPolicy.NEVER
    if not stage.initialized or not any(record.has_started for record in records):
        return "Pending"
    if all(lifecycle.is_final(record, policy) for record in records):
        return "Succeeded" if all(record.exit and record.exit.code == 0 for record in records) else "Failed"
    return "Running"


def pod_status(pod: RunnablePod, stage: Stage, *, host_ip: str, now: float) -> Json:
    """The whole status; a condition keeps its transition time as long as its status does not change."""
    current = phase(pod, stage)
    status: Json = {
        "phase": current,
        "startTime": durations.timestamp(stage.acknowledged_at),
        "conditions": _conditions(pod, stage, current, now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": host_ip,
        "podIPs": [{"ip": host_ip}],
        "qosClass": pods.kube_qos(pod).value,
        "containerStatuses": [
            _container_status(each, stage.of(each), policy_of(each, pod, init=False), now, init=False)
            for each in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _container_status(each, stage.of(each), policy_of(each, pod, init=True), now, init=True)
            for each in pod.spec.init_containers
        ]
    return status


def _conditions(pod: RunnablePod, stage: Stage, current: str, now: float) -> list[Json]:
    sidecars = (each for each in pod.spec.init_containers or () if each.restart_policy == RestartPolicy.ALWAYS)
    lasting = (*sidecars, *pod.spec.containers)
    unready = [container.name for container in lasting if not stage.of(container).is_running]
    ready_reason, ready_message = "", ""
    if current in ("Succeeded", "Failed"):
        ready_reason = "PodCompleted" if current == "Succeeded" else "PodFailed"
    elif unready:
        ready_reason, ready_message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready = not unready and stage.initialized
    return [
        _condition(
            stage, "Initialized", stage.initialized, now, "" if stage.initialized else "ContainersNotInitialized"
        ),
        _condition(stage, "ContainersReady", ready, now, ready_reason, ready_message),
        _condition(stage, "Ready", ready, now, ready_reason, ready_message),
        _condition(stage, "PodScheduled", True, now),
    ]


def _condition(stage: Stage, kind: str, holds: bool, now: float, reason: str = "", message: str = "") -> Json:
    status = str(holds)
    # A patch keeps absent fields; null removes the value of an earlier status.
    return {
        "type": kind,
        "status": status,
        "reason": reason or None,
        "message": message or None,
        "lastTransitionTime": stage.since.get((kind, status)) or durations.timestamp(now),
    }


def _container_status(
    container: RunnableContainer, record: Record, policy: RestartPolicy, now: float, *, init: bool
) -> Json:
    last = record.previous_exit
    runs_once = init and policy is not RestartPolicy.ALWAYS
    state = _state(record)
    if record.exit and lifecycle.runs_again(record, policy) and now < record.retry_at:
        last = record.exit
        message = f"back-off {record.retry_at - record.exit.finished_at:.0f}s restarting failed container"
        state = {"waiting": {"reason": lifecycle.CRASH_LOOP, "message": message}}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": CONTAINER_ID_SCHEME + record.container_id if record.container_id else "",
        "ready": _ended_well(record) if runs_once else record.is_running,
        "started": record.is_running,
        "restartCount": record.restarts,
        "state": state,
        "lastState": _terminated(last) if last else {},
    }


def _ended_well(record: Record) -> bool:
    return record.exit is not None and record.exit.code == 0


def _state(record: Record) -> Json:
    if record.refusal is not None:
        reason, message = record.refusal
        return {"waiting": {"reason": reason, "message": message}}
    if not record.has_started:
        return {"waiting": {"reason": lifecycle.CREATING}}
    if record.exit is None:
        return {"running": {"startedAt": durations.timestamp(record.started_at)}}
    return _terminated(record.exit)


def _terminated(end: Exit) -> Json:
    return {
        "terminated": {
            "exitCode": end.code,
            "reason": end.reason,
            "startedAt": durations.timestamp(end.started_at),
            "finishedAt": durations.timestamp(end.finished_at),
            "containerID": CONTAINER_ID_SCHEME + end.container_id,
        }
    }
