"""A pod's status as the kubelet reports it, from the records of its containers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.local.kubelet import lifecycle
from deploy.local.kubelet.lifecycle import ContainerRecord, Exit, RestartPolicy
from deploy.local.kubelet.wire import RunnableContainer, RunnablePod
from shared import durations
from shared.api import pods

CONTAINER_ID_SCHEME = "headroom://"

Json = dict[str, Any]  # a part of a Kubernetes object to be sent


@dataclass(frozen=True)
class Stage:
    """The state of a pod: its containers' records by name, and since when (RFC 3339) each condition has its status."""

    records: Mapping[str, ContainerRecord]
    since: Mapping[tuple[str, str], str]
    acknowledged_at: float

    def of(self, container: RunnableContainer) -> ContainerRecord:
        return self.records.get(container.name) or ContainerRecord(container.name)


def policy_of(pod: RunnablePod) -> RestartPolicy:
    return RestartPolicy(pod.spec.restart_policy or RestartPolicy.ALWAYS)


def phase(pod: RunnablePod, stage: Stage) -> str:
    """Kubernetes' phase: Pending until a container runs; final once none will run again."""
    records = [stage.of(container) for container in pod.spec.containers]
    policy = policy_of(pod)
    if not any(record.has_started for record in records):
        return "Pending"
    if all(lifecycle.is_final(record, policy) for record in records):
        return "Succeeded" if all(record.exit and record.exit.code == 0 for record in records) else "Failed"
    return "Running"


def pod_status(pod: RunnablePod, stage: Stage, *, host_ip: str, now: float) -> Json:
    """The whole status; a condition keeps its transition time as long as its status does not change."""
    current = phase(pod, stage)
    return {
        "phase": current,
        "startTime": durations.timestamp(stage.acknowledged_at),
        "conditions": _conditions(pod, stage, current, now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": host_ip,
        "podIPs": [{"ip": host_ip}],
        "qosClass": pods.kube_qos(pod).value,
        "containerStatuses": [
            _container_status(each, stage.of(each), policy_of(pod), now) for each in pod.spec.containers
        ],
    }


def _conditions(pod: RunnablePod, stage: Stage, current: str, now: float) -> list[Json]:
    unready = [container.name for container in pod.spec.containers if not stage.of(container).is_running]
    ready_reason, ready_message = "", ""
    if current in ("Succeeded", "Failed"):
        ready_reason = "PodCompleted" if current == "Succeeded" else "PodFailed"
    elif unready:
        ready_reason, ready_message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready = not unready
    return [
        _condition(stage, "Initialized", True, now),
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


def _container_status(container: RunnableContainer, record: ContainerRecord, policy: RestartPolicy, now: float) -> Json:
    last = record.previous_exit
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
        "ready": record.is_running,
        "started": record.is_running,
        "restartCount": record.restarts,
        "state": state,
        "lastState": _terminated(last) if last else {},
    }


def _state(record: ContainerRecord) -> Json:
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
