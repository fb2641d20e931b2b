"""Candidates of auto-provisioning, each as it is made where nothing speaks against its first spec."""

from collections.abc import Mapping, Sequence

from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.scale_up import candidates
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.snapshot.cluster import NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup


def first_specs(
    classes: Sequence[EquivalenceGroup], machines: Mapping[str, NodeTemplate], rules: AutoprovisioningRules
) -> list[GroupSpec]:
    return [next(each) for each in candidates.alternatives(classes, machines, rules)]
