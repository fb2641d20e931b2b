"""Candidates of auto-provisioning, each as it is made where nothing speaks against its first spec."""

from collections.abc import Mapping, Sequence

from manager.autoscaler.autoprovisioning import candidates
from manager.autoscaler.autoprovisioning.candidates import AutoprovisioningRules
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.snapshot.cluster import NodeTemplate
from manager.autoscaler.snapshot.podclasses import PendingClass


def first_specs(
    classes: Sequence[PendingClass], machines: Mapping[str, NodeTemplate], rules: AutoprovisioningRules
) -> list[GroupSpec]:
    return [next(each) for each in candidates.alternatives(classes, machines, rules)]
