"""Whether a node is still what its group would launch now: Karpenter judges only claims of NodePools. Pure."""

from collections.abc import Iterable

from manager.autoscaler.cloudprovider.karpenter import claims, groups
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim, NodeDefaults
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterGroup
from shared.api.core import Taint

HASH, HASH_VERSION = "-hash", "-hash-version"  # of annotations; hashes of different versions cannot be compared


def drift_reason(claim: NodeClaim, group: KarpenterGroup, defaults: NodeDefaults) -> str:
    """How the claim differs from the next one of its group; empty where it does not."""
    said = claim.condition(claims.DRIFTED)
    if said is not None and said.status == "True":
        return f"its NodeClaim says that it has drifted: {said.reason} {said.message}".rstrip()
    offering, node_class = groups.offering_of(group), claim.spec.node_class_ref
    if claim.offering != offering:
        return f"it was launched as {claim.offering}, and its group launches {offering} now"
    if node_class != defaults.node_class:
        return f"it was launched by {node_class}, and its group launches by {defaults.node_class} now"
    if _read(claim.spec.taints or ()) != _read((*defaults.taints, *group.taints)):
        return "it was launched with other taints than those of its group"
    labels = claim.metadata.labels or {}
    other = [key for key, value in (dict(defaults.labels) | group.labels).items() if labels.get(key) != value]
    if other:
        return f"it was launched with another label {min(other)} than its group has"
    return _hash_reason(claim, dict(defaults.hashes))


def _hash_reason(claim: NodeClaim, now: dict[str, str]) -> str:
    """Karpenter's providers write a hash of the node class into the class, and into each claim at its launch."""
    launched = claim.metadata.annotations or {}
    for key, value in now.items():
        version = key + HASH_VERSION.removeprefix(HASH)
        comparable = key.endswith(HASH) and key in launched and launched.get(version) == now.get(version)
        if comparable and launched[key] != value:
            return f"its node class has changed since it was launched ({key})"
    return ""


def _read(taints: Iterable[Taint]) -> frozenset[tuple[str, str, str]]:
    return frozenset((each.key, each.value, each.effect) for each in taints)
