"""PodGroups, whose pods are scheduled together or not at all: of Kubernetes, and of the coscheduling plug-in."""

from shared.api.core import Pod
from shared.api.meta import ObjectMeta, Wire, prepared

LABEL_COSCHEDULING = "scheduling.x-k8s.io/pod-group"  # of a pod: the name of its PodGroup of the plug-in


NATIVE, OF_PLUGIN = "gang/", "coscheduling/"  # what the keys of PodGroups begin with


class GangSchedulingPolicy(Wire, frozen=True):
    min_count: int = 1


class PodGroupSchedulingPolicy(Wire, frozen=True):
    """Without a gang, the pods are scheduled one by one."""

    gang: GangSchedulingPolicy | None = None


class PodGroupSpec(Wire, frozen=True):
    """Every PodGroup of Kubernetes has a `scheduling_policy`, and none of the plug-in has one."""

    scheduling_policy: PodGroupSchedulingPolicy | None = None
    min_member: int = 0


@prepared
class PodGroup(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def key(self) -> str:
        """As pods refer to it."""
        return f"{OF_PLUGIN if self.spec.scheduling_policy is None else NATIVE}{self.metadata.key}"

    @property
    def min_count(self) -> int:
        """The number of pods that are scheduled at once, or not at all; 1 if each is scheduled by itself."""
        policy = self.spec.scheduling_policy
        if policy is None:
            return max(1, self.spec.min_member)
        return 1 if policy.gang is None else max(1, policy.gang.min_count)


def pod_group_of(pod: Pod) -> str:
    """The key of the pod's PodGroup; empty without one."""
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        return f"{NATIVE}{pod.metadata.namespace}/{pod.spec.scheduling_group.pod_group_name}"
    labels = pod.metadata.labels
    name = labels.get(LABEL_COSCHEDULING) if labels else None
    return f"{OF_PLUGIN}{pod.metadata.namespace}/{name}" if name else ""
