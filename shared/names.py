"""Every label, annotation, resource and class name of the product and of the systems it is compatible with, once."""

import enum

INSTALL_NAMESPACE = "headroom-system"
CONFIG_MAP = "slo-controller-config"
CONFIG_KEY_COLOCATION = "colocation-config"

# Resources as Node status and pod requests name them. The cpu ones count integer milli-cores.
CPU = "cpu"
MEMORY = "memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"

# Labels and annotations on pods
LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"
LABEL_QOS_CLASS = "koordinator.sh/qosClass"

# Labels and annotations on nodes
ANNOTATION_COLOCATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
ANNOTATION_NODE_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
LABEL_CPU_RECLAIM_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"
LABEL_MEMORY_RECLAIM_RATIO = "node.koordinator.sh/memory-reclaim-ratio"
LABEL_MID_STATIC_CPU_RESERVED_RATIO = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
LABEL_MID_STATIC_MEMORY_RESERVED_RATIO = "node.koordinator.sh/mid-static-memory-reserved-ratio"

LABEL_SIMULATED = "headroom.io/simulated"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "headroom"


class PriorityClass(enum.StrEnum):
    """The bands of Koordinator's priorities; NONE is everything outside them."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


# Whose unused requests may be lent to Mid.
LENDING_CLASSES = frozenset({PriorityClass.PROD, PriorityClass.NONE})


class QoS(enum.StrEnum):
    """Koordinator's quality-of-service classes; NONE when a pod names none."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class KubeQoS(enum.StrEnum):
    """Kubernetes' quality-of-service classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
