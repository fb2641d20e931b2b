"""The autoscaler's equivalence classes, estimator, and similar groups."""

from collections.abc import Callable
from typing import Any

import msgspec

from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.estimator.binpacking import FastPathCase, Permissions
from manager.autoscaler.estimator.limits import UNLIMITED, lowest_limit
from manager.autoscaler.scale_up import balancing
from manager.autoscaler.settings.estimates import SimilarityRules
from manager.autoscaler.snapshot import cluster, equivalence_groups, pod_info
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Pod
from tests.conformance.adapters import recommending
from tests.conformance.matching import Holds

Input = dict[str, Any]  # a row's input, JSON of the row's own making

ZONE = "topology.kubernetes.io/zone"
MIB = 1 << 20


def grouped_pods(row: Input) -> object:
    given = row["pods"]
    if isinstance(given, int):
        kinds = row.get("distinct_labels", 1)
        given = [{"name": f"p{each}", "ctrl": "rc", "labels": {"kind": str(each % kinds)}} for each in range(given)]
    classes = equivalence_groups.build_equivalence_groups([_pod(each) for each in given], ReferencedObjects()).classes
    groups = sorted(sorted(key.partition("/")[2] for key in each.pods) for each in classes)

    def agrees(claim: object) -> bool:
        if isinstance(claim, list):
            return sorted(sorted(group) for group in claim) == groups
        if not isinstance(claim, dict):
            return False
        sizes = {len(group) for group in groups}
        return claim.get("groups") == len(groups) and sizes == {claim.get("size_each", *sizes)}

    return Holds(agrees)


def _pod(given: Input) -> Pod:
    volumes = []
    if "projected" in given:
        volumes.append({"name": given["projected"], "projected": {"sources": []}})
    if "flex" in given:
        volumes.append({"name": given["flex"], "flexVolume": {"driver": "testDriver"}})
    controller = given.get("ctrl")
    kind = "DaemonSet" if given.get("daemonset") else "ReplicationController"
    owners = [{"kind": kind, "name": controller, "uid": controller, "controller": True}] if controller else []
    requests = {"cpu": f"{given.get('cpu', 0)}m", "memory": str(given.get("mem", 0))}
    container: Input = {"name": "c", "resources": {"requests": requests}}
    if "hostport" in given:
        container["ports"] = [{"hostPort": given["hostport"], "containerPort": given["hostport"]}]
    labels = given.get("labels", {})
    spec: Input = {"containers": [container], "volumes": volumes, "nodeSelector": given.get("node_selector", {})}
    if "spread" in given:
        wanted = given["spread"]
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": wanted["max_skew"],
                "topologyKey": wanted["key"],
                "minDomains": wanted.get("min_domains"),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
            }
        ]
    if "anti_affinity" in given:
        term = {"topologyKey": given["anti_affinity"], "labelSelector": {"matchLabels": labels}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    meta = {"name": given["name"], "namespace": "universe", "labels": labels, "ownerReferences": owners}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def estimated(row: Input) -> object:
    if "template_node" not in row:
        return recommending.estimated(row)
    template = NodeTemplate("group", _node("template", row["template_node"]))
    existing = [_node("existing", row["existing_node"])] if row.get("existing_node") else []
    classes = []
    for given in row["pod_groups"]:
        facts = pod_info.read_pending(_pod({**given, "labels": {"app": given["name"]}}), ReferencedObjects())
        keys = tuple(f"universe/{given['name']}-{each:05d}" for each in range(given["count"]))
        classes.append(EquivalenceGroup(facts, keys, given["name"]))
    asked = problem.packing_problem(cluster.snapshot_of_nodes(existing), classes, [template])
    found = binpacking.estimate(asked, template, range(len(classes)), Permissions(row.get("max_nodes", UNLIMITED)))
    names = [classes[position].controller for position in found.placed]
    return {
        # the row counts every node that took a pod, those included that were there before
        "nodes": found.node_count + found.existing_used,
        "pods": found.pod_count,
        "all_pods_from_group": names[0] if len(names) == 1 else names,
    }


def _node(name: str, given: Input) -> NodeInfo:
    amounts = {"cpu": given["cpu"], "memory": given["mem"], PODS: given["pods"]}
    labels = {LABEL_HOSTNAME: name, ZONE: given.get("label_zone", "")}
    return NodeInfo(name, labels, capacity=amounts, allocatable=amounts)


def pod_order(row: Input) -> object:
    node = {"cpu": row["node"]["cpu_milli"], "memory": row["node"]["mem_bytes"]}
    template = NodeTemplate("group", NodeInfo("node", capacity=node, allocatable=node))
    classes = [
        EquivalenceGroup(PodInfo(requests={"cpu": each["cpu"], "memory": each["mem"]}), (each["name"],))
        for each in row["groups"]
    ]
    asked = problem.packing_problem(cluster.snapshot_of_nodes([]), classes)
    order = binpacking.in_order(asked, template, range(len(classes)))
    found = binpacking.scores(*asked.cpu_and_memory, node)
    names = [each.pods[0] for each in classes]
    return {"order": [names[position] for position in order], "scores": dict(zip(names, found.tolist(), strict=True))}


def fast_path_index(row: Input) -> object:
    node = row.get("node", {"cpu_milli": 100, "mem_bytes": 100 * MIB})
    cases = []
    for each in row["groups"]:
        excluded = each.get("anti_affinity", each.get("anti_affinity_key"))
        key = LABEL_HOSTNAME if excluded in (True, "hostname") or each.get("hostname_anti_affinity") else excluded
        beyond = bool(key) and key != LABEL_HOSTNAME
        cases.append(
            FastPathCase(
                each["cpu_milli"], each["mem_bytes"], each["pods"], each["spread"], beyond, bool(key) and not beyond
            )
        )
    return binpacking.fast_path_index(cases, {"cpu": node["cpu_milli"], "memory": node["mem_bytes"]})


def estimation_limiter(row: Input) -> object:
    most = UNLIMITED
    for threshold in row["static_node_thresholds"]:
        most = lowest_limit(most, threshold)
    permissions = Permissions(most)
    answers = ""
    for asked in row["ops"]:
        if asked in "rR":
            permissions = Permissions(most)
            answers += asked
        else:
            answers += "A" if permissions.take(1) else "D"
    return {"final_node_counter": permissions.nodes if answers == row["ops"] else answers}


def are_similar(row: Input) -> object:
    extra = tuple(row.get("ignored_labels", ()))
    compared = tuple(row.get("balancing_labels", ()))
    similarity = SimilarityRules(balancing_ignore_label=extra, balancing_label=compared)
    return balancing.are_similar(_template(row["a"]), _template(row["b"]), similarity)


def _template(given: Input) -> NodeTemplate:
    memory = given["mem_ki"] * 1024 if "mem_ki" in given else given["mem_cap"]
    capacity = {"cpu": given["cpu_cap"], "memory": memory, **given.get("extra_cap", {})}
    allocatable = {
        **capacity,
        "cpu": given.get("cpu_alloc", given["cpu_cap"]),
        "memory": given.get("mem_alloc", memory),
    }
    used = {"cpu": given.get("used_cpu", 0), "memory": given.get("used_mem", 0)}
    daemons = (PodInfo(requests=used),) if any(used.values()) else ()
    return NodeTemplate("group", NodeInfo("node", given.get("labels", {}), {}, (), capacity, allocatable), daemons)


def similar_for_option(row: Input) -> object:
    return balancing.similar_for_option(
        row["group_pods"],
        row["similar"],
        balance_similar=row.get("balance_similar", True),
        is_zero_or_max=row.get("zero_or_max", False),
    )


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "equivalence_groups": grouped_pods,
    "estimator": estimated,
    "pod_order": pod_order,
    "fastpath_index": fast_path_index,
    "estimation_limiter": estimation_limiter,
    "similar_groups": are_similar,
    "similar_for_option": similar_for_option,
}
