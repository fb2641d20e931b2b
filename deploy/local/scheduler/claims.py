"""Whether the claims a pod names are there, in kube-scheduler's words for why it waits.

Nothing here makes volumes or devices, so a claim that exists is taken as it is.
"""

from collections.abc import Iterator

from shared.api.core import PersistentVolumeClaim, Pod, PodResourceClaim
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.informer import Informer
from shared.kube.resources import Resource

RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
LOST = "Lost"


def volume_problem(pod: Pod, claims: Informer[PersistentVolumeClaim]) -> str:
    """Why no node has the pod's volumes; nothing if their claims are there."""
    for name, is_ephemeral in _volume_claims(pod):
        claim = claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None and is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.status.phase == LOST:
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
        if claim.metadata.deletion_timestamp:
            return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def resource_problem(pod: Pod, client: Client) -> str:
    """Why no node has the devices the pod claims; nothing if its ResourceClaims are there. Raises HeadroomError."""
    for claim in pod.spec.resource_claims or ():
        name, is_made = _resource_claim(pod, claim)
        if not is_made:
            return f'pod "{pod.metadata.key}": ResourceClaim not created yet'
        if not name:
            continue  # its template needed none
        try:
            found = client.get(RESOURCE_CLAIMS, name, pod.metadata.namespace)
        except NotFound:
            return f'resourceclaim "{name}" not found'
        if found["metadata"].get("deletionTimestamp"):
            return f'resourceclaim "{name}" is being deleted'
        if not found.get("status", {}).get("allocation"):
            return "cannot allocate all claims"
    return ""


def _volume_claims(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Their names, and whether the claim comes and goes with the pod."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True


def _resource_claim(pod: Pod, claim: PodResourceClaim) -> tuple[str, bool]:
    """The claim's name, and whether it is known: one from a template stands in the pod's status once it is made."""
    if claim.resource_claim_name:
        return claim.resource_claim_name, True
    statuses = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    return statuses.get(claim.name, ""), claim.name in statuses
