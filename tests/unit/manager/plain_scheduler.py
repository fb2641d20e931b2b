"""kube-scheduler's predicates and the estimator's rule once more, pod by pod and as plainly as can be: what the arrays
are judged by.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shared.api import pods as pod_requests
from shared.api.core import NodeSelectorRequirement, Pod, PodAffinityTerm, Taint
from shared.api.selectors import LabelRequirement, LabelSelector

HOSTNAME = "kubernetes.io/hostname"


@dataclass(eq=False)
class PlainNode:
    name: str
    labels: dict[str, str]
    allocatable: dict[str, int]
    taints: tuple[Taint, ...] = ()
    pods: list[Pod] = field(default_factory=list)


Cluster = list[PlainNode]


def refusal(pod: Pod, node: PlainNode, cluster: Cluster) -> str:
    """The predicate that fails first; empty when the pod fits."""
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("taints", lambda: tolerates(pod, node)),
        ("affinity", lambda: matches_node(pod, node)),
        ("ports", lambda: not any(ports_conflict(pod, other) for other in node.pods)),
        ("resources", lambda: has_room(pod, node)),
        (spread_problem(pod, node, cluster), lambda: not spread_problem(pod, node, cluster)),
        ("pod affinity", lambda: affinity_holds(pod, node, cluster)),
        ("pod anti-affinity", lambda: anti_affinity_holds(pod, node, cluster)),
    ]
    return next((name for name, check in checks if not check()), "")


def has_room(pod: Pod, node: PlainNode) -> bool:
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        return False
    for name, amount in pod_requests.requests(pod).items():
        used = sum(pod_requests.requests(other).get(name, 0) for other in node.pods)
        if amount > 0 and used + amount > node.allocatable.get(name, 0):
            return False
    return True


def tolerates(pod: Pod, node: PlainNode) -> bool:
    for taint in node.taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        for toleration in pod.spec.tolerations or ():
            right_key = not toleration.key or toleration.key == taint.key
            right_effect = not toleration.effect or toleration.effect == taint.effect
            if right_key and right_effect and (toleration.operator == "Exists" or toleration.value == taint.value):
                break
        else:
            return False
    return True


def matches_node(pod: Pod, node: PlainNode) -> bool:
    for key, value in (pod.spec.node_selector or {}).items():
        if node.labels.get(key) != value:
            return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    for term in affinity.required.node_selector_terms:
        labels = all(requirement_holds(each, node.labels) for each in term.match_expressions or ())
        fields = all(requirement_holds(each, {"metadata.name": node.name}) for each in term.match_fields or ())
        if labels and fields and (term.match_expressions or term.match_fields):
            return True
    return False


def requirement_holds(each: NodeSelectorRequirement | LabelRequirement, labels: dict[str, str]) -> bool:
    value, values = labels.get(each.key), each.values or ()
    if each.operator == "In":
        return value in values
    if each.operator == "NotIn":
        return value not in values
    if each.operator == "Exists":
        return value is not None
    if each.operator == "DoesNotExist":
        return value is None
    if value is None:
        return False
    return int(value) > int(values[0]) if each.operator == "Gt" else int(value) < int(values[0])


def selects(selector: LabelSelector | None, pod: Pod) -> bool:
    if selector is None:
        return False
    labels = pod.metadata.labels or {}
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            return False
    return all(requirement_holds(each, labels) for each in selector.match_expressions or ())


def ports_conflict(one: Pod, other: Pod) -> bool:
    for container in one.spec.containers:
        for port in container.ports or ():
            for theirs in (each for c in other.spec.containers for each in c.ports or ()):
                same = port.host_port == theirs.host_port and port.protocol == theirs.protocol and port.host_port > 0
                anywhere = {port.host_ip or "0.0.0.0", theirs.host_ip or "0.0.0.0"}
                if same and (len(anywhere) == 1 or "0.0.0.0" in anywhere):
                    return True
    return False


def term_means(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    namespaces = term.namespaces or (owner.metadata.namespace,)
    return other.metadata.namespace in namespaces and selects(term.label_selector, other)


def affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    return (affinity.required if affinity else None) or ()


def anti_affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return (affinity.required if affinity else None) or ()


def together(node: PlainNode, key: str, cluster: Cluster) -> list[Pod]:
    """All pods in the node's domain of a key."""
    if key not in node.labels:
        return []
    return [pod for each in cluster if each.labels.get(key) == node.labels[key] for pod in each.pods]


def affinity_holds(pod: Pod, node: PlainNode, cluster: Cluster) -> bool:
    terms = affinity_terms(pod)
    if not all(term.topology_key in node.labels for term in terms):
        return False

    def means(other: Pod) -> bool:
        return all(term_means(term, pod, other) for term in terms)

    if all(any(means(other) for other in together(node, term.topology_key, cluster)) for term in terms):
        return True
    anyone = any(
        means(other)
        for each in cluster
        if any(term.topology_key in each.labels for term in terms)
        for other in each.pods
    )
    return not anyone and means(pod)


def anti_affinity_holds(pod: Pod, node: PlainNode, cluster: Cluster) -> bool:
    for term in anti_affinity_terms(pod):
        if any(term_means(term, pod, other) for other in together(node, term.topology_key, cluster)):
            return False
    for each in cluster:
        for other in each.pods:
            for term in anti_affinity_terms(other):
                key = term.topology_key
                same = key in each.labels and each.labels[key] == node.labels.get(key)
                if same and term_means(term, other, pod):
                    return False
    return True


def spread_problem(pod: Pod, node: PlainNode, cluster: Cluster) -> str:
    """The first constraint's problem: a label the node lacks, or too many pods in its domain."""
    constraints = [
        each for each in pod.spec.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"
    ]
    keys = [each.topology_key for each in constraints]
    for constraint in constraints:
        key = constraint.topology_key
        if key not in node.labels:
            return "missing label"
        counts: dict[str, int] = {}
        for each in cluster:
            if not all(needed in each.labels for needed in keys):
                continue
            if constraint.node_affinity_policy == "Honor" and not matches_node(pod, each):
                continue
            if constraint.node_taints_policy == "Honor" and not tolerates(pod, each):
                continue
            found = sum(
                other.metadata.namespace == pod.metadata.namespace
                and other.metadata.deletion_timestamp is None
                and selects(constraint.label_selector, other)
                for other in each.pods
            )
            counts[each.labels[key]] = counts.get(each.labels[key], 0) + found
        if not counts:
            continue
        least = 0 if len(counts) < (constraint.min_domains or 1) else min(counts.values())
        itself = selects(constraint.label_selector, pod)
        if counts.get(node.labels[key], 0) + itself - least > constraint.max_skew:
            return "spread"
    return ""


@dataclass
class Plain:
    """What the rule gives: new nodes with pods, and how many pods of each group found a place."""

    new_nodes: int
    existing_used: int
    placed: list[int]


def estimate(cluster: Cluster, fresh: Callable[[int], PlainNode], groups: Sequence[list[Pod]], most: int) -> Plain:
    """The estimator's rule pod by pod; `groups` come in their order. `cluster` is changed."""
    known = len(cluster)
    granted = 0
    pointer = 0
    permitted = True
    used: set[str] = set()
    placed = []

    def put(pod: Pod, node: PlainNode) -> None:
        node.pods.append(pod)
        used.add(node.name)

    def anywhere(pod: Pod, acceptable: Callable[[int], bool]) -> bool:
        nonlocal pointer
        for step in range(len(cluster)):
            index = (pointer + step) % len(cluster)
            if acceptable(index) and not refusal(pod, cluster[index], cluster):
                put(pod, cluster[index])
                pointer = index + 1
                return True
        return False

    for group in groups:
        waiting = list(group)
        while waiting and len(cluster) > known and anywhere(waiting[0], lambda index: index >= known):
            waiting.pop(0)
        while waiting and permitted:
            pod = waiting[0]
            if len(cluster) > known:
                last = cluster[-1]
                why = refusal(pod, last, cluster)
                if not why:
                    put(waiting.pop(0), last)
                    continue
                by_host = any(each.topology_key == HOSTNAME for each in pod.spec.topology_spread_constraints or ())
                if by_host and why == "spread" and anywhere(pod, lambda index: index != len(cluster) - 1):
                    waiting.pop(0)
                    continue
                if last.name not in used:
                    break
            if 0 < most <= granted or most < 0:
                permitted = False
                break
            granted += 1
            cluster.append(fresh(len(cluster) - known))
            if refusal(pod, cluster[-1], cluster):
                break
            put(waiting.pop(0), cluster[-1])
        placed.append(len(group) - len(waiting))
    new = sum(node.name in used for node in cluster[known:])
    return Plain(new, len(used) - new, placed)
