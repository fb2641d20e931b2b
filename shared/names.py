"""The labels, annotations, resources and class names of the product and of compatible systems, each defined once."""

import enum

INSTALL_NAMESPACE = "headroom-system"
CONFIG_MAP = "slo-controller-config"
CONFIG_KEY_COLOCATION = "colocation-config"
CONFIG_KEY_THRESHOLDS = "resource-threshold-config"
REGISTRY_CONFIG_MAP = "headroom-autoscaler-registry"
FORMER_REGISTRY_CONFIG_MAP = "headroom-autoscaler-books"  # of earlier versions
DECISIONS_CONFIG_MAP = "headroom-autoscaler-decisions"
MANAGER_LEASE = "headroom-manager"
DEFAULT_SCHEDULER = "default-scheduler"
CA_CONFIG_MAP = "headroom-ca"  # the authority (ca.crt) that clients of the manager trust
MANAGER_SERVER_NAME = "headroom-manager"  # its certificate always has this name, whatever its Service is called

# Resource names in Node status and pod requests. The cpu ones count integer milli-cores.
CPU = "cpu"
MEMORY = "memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"

# Labels and annotations on pods
LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"
LABEL_QOS_CLASS = "koordinator.sh/qosClass"
LABEL_PRIORITY = "koordinator.sh/priority"
LABEL_EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
ANNOTATION_AGENT_ADDRESS = "headroom.io/agent-address"  # on a simulated Node: HOST:PORT of its agent
ANNOTATION_EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
ANNOTATION_EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec"

# On a ClusterColocationProfile, or on a pod itself: requests stay unchanged.
ANNOTATION_USAGE_CURVE = "headroom.io/usage-curve"  # on a pod of a simulated Node: CURVE or CURVE:SEED
ANNOTATION_SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources"

# On a pod: how load-aware scheduling estimates its usage, if the pod may override it.
ANNOTATION_ESTIMATED_SCALING_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
ANNOTATION_ESTIMATED_SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
ANNOTATION_ESTIMATED_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"  # the API's copy of a static pod
ANNOTATION_PROFILES_DRAWN_BY = "headroom.io/profiles-drawn-by"  # the pod's identity before it has a name

ANNOTATION_RECLAIM_AT = "headroom.io/reclaim-at"  # on a pod: when it will be evicted, RFC 3339

# JSON: by container, the native limits that the webhook set where the pod had none.
ANNOTATION_DEFAULTED_LIMITS = "headroom.io/defaulted-limits"

# Labels and annotations on nodes
ANNOTATION_USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
ANNOTATION_COLOCATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
ANNOTATION_NODE_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE = "node.koordinator.sh/originExtendedAllocatable"
ANNOTATION_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"  # of a node or a pod
# On a CapacityBuffer, "true" or "false": whether Mid on offer counts as room for its chunks.
ANNOTATION_BUFFER_ON_MID = "headroom.io/buffer-on-mid"
ANNOTATION_FORGET = "headroom.io/forget-prediction"  # up to when, RFC 3339
ANNOTATION_FORGET_WORKLOADS = "headroom.io/forget-prediction-workloads"  # JSON: the same by namespace/Kind/name
LABEL_CPU_RECLAIM_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"
LABEL_MEMORY_RECLAIM_RATIO = "node.koordinator.sh/memory-reclaim-ratio"
LABEL_MID_STATIC_CPU_RESERVED_RATIO = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
LABEL_MID_STATIC_MEMORY_RESERVED_RATIO = "node.koordinator.sh/mid-static-memory-reserved-ratio"

# Conditions of nodes: pods of a tier hold more than the node offers.
CONDITION_MID_SHORTFALL = "headroom.io/MidShortfall"
CONDITION_BATCH_SHORTFALL = "headroom.io/BatchShortfall"
CONDITION_CONTRADICTION = "headroom.io/NodeMetricContradiction"

LABEL_SIMULATED = "headroom.io/simulated"
LABEL_NODE_GROUP = "headroom.io/node-group"  # on objects of groups that the manager makes, and on nodes of NodeClaims
ANNOTATION_NODE_GROUP_SPEC = "headroom.io/node-group-spec"  # JSON: what a created group was made of
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "headroom"


class PriorityClass(enum.StrEnum):
    """The bands of Koordinator's priorities; NONE is everything outside them."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


class Tier(enum.StrEnum):
    """The tiers of capacity that the manager offers beyond a node's own resources."""

    MID = "mid"
    BATCH = "batch"


# The resource names under which a tier offers cpu and memory.
TIER_RESOURCES = {Tier.MID: (MID_CPU, MID_MEMORY), Tier.BATCH: (BATCH_CPU, BATCH_MEMORY)}

# The priority class whose pods use a tier.
TIER_CLASSES = {Tier.MID: PriorityClass.MID, Tier.BATCH: PriorityClass.BATCH}

# Annotations of a Namespace: how much cpu and memory of a tier its pods may hold together.
ANNOTATION_BOUNDS = {
    tier: (f"headroom.io/max-{tier}-cpu", f"headroom.io/max-{tier}-memory") for tier in (Tier.MID, Tier.BATCH)
}

# The classes whose unused requests may be lent to Mid.
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
