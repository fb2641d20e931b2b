"""What kube-scheduler's messages on pods say: how many nodes they count, and which plug-ins refuse these."""

import re
from collections.abc import Iterator

_COUNTED = re.compile(r"^0/(\d+) nodes are available")
_REASON = re.compile(r"(\d{1,9}) (.+)")
# Refusals that end by themselves, and those of the scheduler extender of the node side, which minds load and offers.
_PASSING = (
    "is in the process of being allocated",
    "usage exceed threshold",
    "nodeMetric expired",
    "has shrunk",
)
_NOT_READY = "node.kubernetes.io/not-ready"  # named before Kubernetes 1.35
# What the scheduler's filters say, where it is not what our predicates say.
_PLUGIN_OF = {
    "exceed max volume count": "NodeVolumeLimits",
    "available persistent volumes to bind": "VolumeBinding",
    "did not have enough free storage": "VolumeBinding",
    "node(s) unavailable due to": "VolumeBinding",
    "available volume zone": "VolumeZone",
    "allocate all claims": "DynamicResources",
    "device class": "DynamicResources",
    "resourceclaim": "DynamicResources",
    "no available disk": "VolumeRestrictions",
    "minCount pods from a gang": "GangScheduling",
    "required features": "NodeDeclaredFeatures",
    "topology spread constraints": "PodTopologySpread",
    "pod affinity rules": "InterPodAffinity",
    "anti-affinity rules": "InterPodAffinity",
    "free ports": "NodePorts",
    "untolerated taint": "TaintToleration",
    "node affinity/selector": "NodeAffinity",
    "were unschedulable": "NodeUnschedulable",
    "Insufficient": "NodeResourcesFit",
}
OTHER_PLUGIN = "other"
PLUGINS = (*dict.fromkeys(_PLUGIN_OF.values()), OTHER_PLUGIN)


def counted_nodes(message: str) -> int | None:
    """The number of nodes that a refusal counts, which are all that the scheduler knew; None if it does not say."""
    found = _COUNTED.match(message)
    return int(found[1]) if found and len(found[1]) < 10 else None


def plugin_of(message: str) -> str:
    """The plug-in that refuses, by its words; the first of several in the order of `PLUGINS`."""
    return next((name for words, name in _PLUGIN_OF.items() if words in message), OTHER_PLUGIN)


def is_passing(message: str) -> bool:
    """Whether the refusal ends by itself."""
    return any(mark in message for mark in _PASSING)


def unready_nodes(message: str) -> int:
    """The number of nodes that are refused because they are not ready, as far as the message says why."""
    return sum(count for count, words in _listed(message) if _NOT_READY in words)


def without_room(message: str) -> int:
    """The number of nodes that lack resources; one that lacks several counts as often."""
    return sum(count for count, plugin in reasons(message) if plugin == "NodeResourcesFit")


def reasons(message: str) -> Iterator[tuple[int, str]]:
    """By reason: the number of nodes that are refused for it, and the plug-in."""
    return ((count, plugin_of(words)) for count, words in _listed(message))


def _listed(message: str) -> Iterator[tuple[int, str]]:
    """By reason: the number of nodes, and the words."""
    listed = message.partition(": ")[2].partition(". ")[0]
    for part in listed.removesuffix(".").split(", "):
        if found := _REASON.fullmatch(part):
            yield int(found[1]), found[2]
