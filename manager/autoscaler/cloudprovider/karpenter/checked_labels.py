"""Which labels a NodeClaim may carry to its node, and those that Karpenter resolves by itself."""

import re

LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_MACHINE_TYPE = "node.kubernetes.io/instance-type"
LABEL_ARCH, LABEL_OS = "kubernetes.io/arch", "kubernetes.io/os"
LABEL_CAPACITY_TYPE = "karpenter.sh/capacity-type"
LABEL_NODE_POOL = "karpenter.sh/nodepool"

_SEGMENT = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_SEGMENT}")
_VALUE = re.compile(rf"({_SEGMENT})?")
# What stands there is for Kubernetes, for Karpenter and for its providers to say.
_RESERVED = ("kubernetes.io", "k8s.io", "karpenter.sh")
_OPEN = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")


def problem_of(key: str, value: str) -> str:
    """Why a group may not ask for this label; empty if it may."""
    if not _KEY.fullmatch(key):
        return "not a label's key"
    if not _VALUE.fullmatch(value):
        return "not a label's value"
    return "a label of this domain is not a group's to set" if is_reserved(key) else ""


def is_reserved(key: str) -> bool:
    """Whether only the cloud gives such a label, in particular the one of a NodePool."""
    domain = key.rpartition("/")[0]
    if any(domain == each or domain.endswith(f".{each}") for each in _OPEN):
        return False
    return "karpenter" in domain.split(".") or any(domain == each or domain.endswith(f".{each}") for each in _RESERVED)
