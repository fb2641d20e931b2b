"""Pods as the API server tells them."""

from agent.states_informer.pods import NodePod, describe
from shared import durations
from shared.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta

NOW = 1_700_000_000.0


def pod(
    uid: str = "uid-1",
    *,
    cpu: str = "1",
    memory: str = "1Gi",
    priority: int | None = 9000,
    age_seconds: float = 100_000.0,
    phase: str = "Running",
    terminating: bool = False,
    qos: str = "Burstable",
) -> NodePod:
    requests: dict[str, str | int | float] = {"cpu": cpu, "memory": memory}
    return describe(
        Pod(
            metadata=ObjectMeta(
                name=uid,
                namespace="default",
                uid=uid,
                creation_timestamp=durations.timestamp(NOW - age_seconds),
                deletion_timestamp=durations.timestamp(NOW) if terminating else None,
            ),
            spec=PodSpec(
                node_name="node",
                priority=priority,
                containers=(Container(name="c", resources=ResourceRequirements(requests=requests)),),
            ),
            status=PodStatus(phase=phase, qos_class=qos),
        )
    )
