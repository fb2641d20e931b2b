"""The kinds that pending pods refer to, and that a dump has no object of."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from deploy import rendering
from manager.autoscaler.snapshot import volumes
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api import podgroup
from shared.api.core import PersistentVolumeClaim, Pod
from shared.api.storage import NO_PROVISIONER

Needs = Callable[[Pod, ReferencedObjects], Iterable[str]]


def notes(pods: Iterable[Pod], there: ReferencedObjects, source: str) -> Iterator[str]:
    """What is not judged for want of a kind, and how many pending pods that concerns."""
    missing: dict[str, int] = {}
    for pod in pods:
        if not pod.spec.node_name:
            for kind in dict.fromkeys(chain.from_iterable(needs(pod, there) for needs in _NEEDS)):
                missing[kind] = missing.get(kind, 0) + 1
    for kind, count in missing.items():
        yield f"there is no {kind} in {source}: {_UNJUDGED[kind]}, for {rendering.count(count, 'pending pod')}"


def _of_volumes(pod: Pod, there: ReferencedObjects) -> Iterator[str]:
    names = [name for name, _ in volumes.volume_claims(pod)]
    if not names:
        return
    if there.claims is None:
        yield "PersistentVolumeClaim"
        return
    claims = [found for name in names if (found := there.claims.get(f"{pod.metadata.namespace}/{name}")) is not None]
    unbound = [each for each in claims if not each.spec.volume_name]
    if len(unbound) < len(claims) and there.volumes is None:
        yield "PersistentVolume"
    if unbound and there.storage_classes is None:
        yield "StorageClass"
    elif there.volumes is None and any(_needs_volume(each, there) for each in unbound):
        yield "PersistentVolume"
    if there.csi_nodes is None:
        yield "CSINode"


def _needs_volume(claim: PersistentVolumeClaim, there: ReferencedObjects) -> bool:
    found = (there.storage_classes or {}).get(claim.storage_class)
    return found is not None and found.provisioner == NO_PROVISIONER


def _of_gangs(pod: Pod, there: ReferencedObjects) -> Iterator[str]:
    if there.pod_groups is None and podgroup.pod_group_of(pod):
        yield "PodGroup"


_NEEDS: tuple[Needs, ...] = (_of_volumes, _of_gangs)
_UNJUDGED = {
    "PersistentVolumeClaim": "volumes are not judged",
    "PersistentVolume": "where volumes are is not judged",
    "StorageClass": "where claims can get their volumes is not judged",
    "CSINode": "how many volumes a node takes is not judged",
    "PodGroup": "which pods are scheduled together is not judged",
}
