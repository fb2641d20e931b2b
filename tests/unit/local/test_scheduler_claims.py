"""Pods whose claims are not there wait, with kube-scheduler's words for it."""

import pytest

from deploy.local.scheduler import claims
from shared.api.core import (
    ClaimVolumeSource,
    EphemeralVolumeSource,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    Pod,
    PodSpec,
    Volume,
)
from shared.api.meta import ObjectMeta
from shared.kube.informer import Informer


class Known(Informer[PersistentVolumeClaim]):
    """An informer that has been told of these, and of nothing else."""

    def __init__(self, *told: PersistentVolumeClaim) -> None:
        self._told = {each.metadata.key: each for each in told}

    def get(self, key: str) -> PersistentVolumeClaim | None:
        return self._told.get(key)


def claim(phase: str = "Bound", deleted_at: str | None = None) -> PersistentVolumeClaim:
    meta = ObjectMeta(name="data", namespace="team", deletion_timestamp=deleted_at)
    return PersistentVolumeClaim(
        meta, PersistentVolumeClaimSpec(volume_name="disk"), PersistentVolumeClaimStatus(phase)
    )


def pod(volume: Volume) -> Pod:
    return Pod(ObjectMeta(name="db", namespace="team"), PodSpec(volumes=(Volume(name="tmp"), volume)))


NAMED = Volume(name="v", persistent_volume_claim=ClaimVolumeSource("data"))


@pytest.mark.parametrize(
    ("volume", "known", "problem"),
    [
        (NAMED, (), 'persistentvolumeclaim "data" not found'),
        (NAMED, (claim(),), ""),
        (NAMED, (claim("Lost"),), 'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"'),
        (NAMED, (claim(deleted_at="2026-01-01T00:00:00Z"),), 'persistentvolumeclaim "data" is being deleted'),
        (
            Volume(name="scratch", ephemeral=EphemeralVolumeSource()),
            (claim(),),
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "db-scratch"',
        ),
    ],
)
def test_a_pod_whose_pvc_is_not_there_is_unschedulable(
    volume: Volume, known: tuple[PersistentVolumeClaim, ...], problem: str
) -> None:
    assert claims.volume_problem(pod(volume), Known(*known)) == problem
