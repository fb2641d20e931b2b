"""What clouds' groups have in common: the labels of their next nodes, options written as texts, names of new groups."""

import hashlib
import random
import re
from collections.abc import Callable, Collection, Mapping

import msgspec

from shared import durations

LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_MACHINE_TYPE = "node.kubernetes.io/instance-type"
LABEL_ARCH, LABEL_OS = "kubernetes.io/arch", "kubernetes.io/os"

_SEGMENT = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LABEL_KEY = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_SEGMENT}")
LABEL_VALUE = re.compile(rf"({_SEGMENT})?")
# What stands there is for Kubernetes, for Karpenter and for its providers to say.
_RESERVED = ("kubernetes.io", "k8s.io", "karpenter.sh")
_OPEN = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")

SUFFIX_LENGTH = 5
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own: they form no words


def is_of_domain(label: str, domains: Collection[str]) -> bool:
    """Whether the key of a label is in one of the domains, or below it."""
    domain = label.rpartition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in domains)


def syntax_problem(key: str, value: str) -> str:
    """Why it is no label; empty if it is one."""
    if not LABEL_KEY.fullmatch(key):
        return "not a label's key"
    return "" if LABEL_VALUE.fullmatch(value) else "not a label's value"


def is_reserved(key: str) -> bool:
    """Whether only the cloud gives such a label, in particular the one of a NodePool."""
    if is_of_domain(key, _OPEN):
        return False
    return "karpenter" in key.rpartition("/")[0].split(".") or is_of_domain(key, _RESERVED)


def label_problem(key: str, value: str) -> str:
    """Why a group may not ask for this label; empty if it may."""
    return syntax_problem(key, value) or ("a group must not set labels of this domain" if is_reserved(key) else "")


def group_name(prefix: str, machine_type: str, suffix: str, most: int) -> str:
    """Of at most `most` characters."""
    kept = f"{prefix}-{re.sub(r'[^a-z0-9.-]+', '-', machine_type.lower())}"
    return f"{kept[: most - SUFFIX_LENGTH - 1].rstrip('.-')}-{suffix}"


def digest_suffix(spec: object) -> str:
    """The end of a name that differs where the spec does."""
    digest = hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).digest()
    return "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in digest[:SUFFIX_LENGTH])


def random_suffix(chance: random.Random) -> str:
    return "".join(chance.choices(_SUFFIX_LETTERS, k=SUFFIX_LENGTH))


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(repr(text.lower()))
    return text.lower() == "true"


# By the names of Cluster Autoscaler, which tags and annotations carry.
_OPTIONS: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", float),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", float),
    "scaledownunneededtime": ("scale_down_unneeded_time_seconds", durations.parse),
    "scaledownunreadytime": ("scale_down_unready_time_seconds", durations.parse),
    "maxnodeprovisiontime": ("max_node_provision_time_seconds", durations.parse),
    "maxnodestartuptime": ("max_node_startup_time_seconds", durations.parse),
    "maxnodelifetime": ("max_node_lifetime_seconds", durations.parse),
    "zeroormaxnodescaling": ("zero_or_max_node_scaling", _flag),
    "ignoredaemonsetsutilization": ("ignore_daemonsets_utilization", _flag),
}
FLAGS = frozenset({"zeroormaxnodescaling", "ignoredaemonsetsutilization"})


def read_option(name: str, text: str) -> dict[str, float]:
    """The field of `GroupOptions` that an option fills, with its value; none of an unknown one. Raises ValueError."""
    if name not in _OPTIONS:
        return {}
    field, read = _OPTIONS[name]
    return {field: read(text)}
