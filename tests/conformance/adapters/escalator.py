"""Scaling by utilisation under `compat: escalator`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from manager.autoscaler.cloudprovider.aws.fleet import AwsOptions
from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import (
    arithmetic,
    classes,
    node_groups,
    observation,
    reaping,
    rules,
    scan,
    scan_context,
)
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.arithmetic import GroupUtilization, Uncomputable
from manager.autoscaler.utilization.decisions import ScanRule
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.node_groups import NodeGroup
from manager.autoscaler.utilization.observation import CloudGroup, GroupNode, GroupPod, Observation
from manager.autoscaler.utilization.reaping import PodsByNode
from manager.autoscaler.utilization.rules import ScanRules
from shared import durations, quantity
from shared.api.core import Pod, Taint
from shared.errors import InvalidInput
from shared.quantity import Resources
from tests.conformance.matching import Holds

Input = dict[str, Any]  # a row's input, JSON of the row's own making

NOW = 1_700_000_000.5  # a taint has whole seconds, so that what is as old as its grace is a little older
MARKER = "MAX_FLOAT64"
SIZE = Resources(1000, 1000)  # of a node of which nothing is said
CODES = {
    ScanRule.SCALE_UP: "scale_up",
    ScanRule.ENOUGH: "none",
    ScanRule.SLOW_REMOVAL: "slow",
    ScanRule.FAST_REMOVAL: "fast",
}
_UNTOLD = Holds(lambda _: True)  # what Escalator's documents say, where that is not what it does


def auto_discover_min_max(row: Input) -> object:
    return _rules(**row).group.bounds is None


def calc_percent_usage(row: Input) -> object:
    demand = Resources(row["cpu_request_milli"], row["mem_request_bytes"])
    capacity = Resources(row["cpu_capacity_milli"], row["mem_capacity_bytes"])
    error = None
    try:
        found = arithmetic.utilization(demand, capacity, row["untainted_nodes"])
    except Uncomputable as problem:
        found, error = GroupUtilization(0, 0), str(problem)
    return {"cpu_percent": _told(found.cpu_percent), "mem_percent": _told(found.memory_percent), "error": error}


def calculate_nodes_to_add(row: Input) -> object:
    return scan.room(row["nodes_to_add"], target_size=row["target_size"], max_size=row["cloud_max"])


def config_validation(row: Input) -> object:
    return list(node_groups.problems(_group(row)))


def dry_mode(row: Input) -> object:
    return rules.scan_rules(NodeGroup(dry_mode=row["group_dry_mode"]), dry=row["master_drymode"]).dry


def exclude_unavailable_node_pods(row: Input) -> object:
    pods = [GroupPod(name, node=node) for name, _, node in (each.partition("@") for each in row["pods_at_node"])]
    nodes = set(row["available_nodes"])
    return [pod.name for pod in scan_context.available(tuple(pods), nodes, with_unscheduled=row["include_unscheduled"])]


def filter_nodes(row: Input) -> object:
    nodes = [
        GroupNode(
            each["name"],
            taints=tuple(Taint(key) for key in each.get("taints", ())),
            cordoned=each.get("unschedulable", False),
        )
        for each in row["nodes"]
    ]
    trackers = row.get("taint_tracker") or (), row.get("force_taint_tracker") or ()
    found = classes.classify_dry(nodes, *trackers) if row["dry"] else classes.classify(nodes)
    kinds = ("untainted", "tainted", "force_tainted", "cordoned")
    return {kind: [node.name for node in getattr(found, kind)] for kind in kinds}


def go_duration(row: Input) -> object:
    try:
        return {"seconds": durations.parse(row["text"])}
    except ValueError:
        return {"seconds": None}


def health_count_unhealthy(row: Input) -> object:
    return len(_unhealthy(row))


def health_filter_too_new(row: Input) -> object:
    # Escalator's clock goes on between the creation of the nodes and the look at them.
    grace = durations.parse(row["grace"])
    found = classes.nodes_past_grace(_aged(row["ages_minutes"]), grace_seconds=grace, now=NOW + 0.001)
    return [node.name for node in found]


def health_is_healthy(row: Input) -> object:
    grace = durations.parse(row.get("grace", "10m"))
    unhealthy, age = row["unhealthy"], _age(row.get("creation", "now-2*grace"), grace)
    nodes = [GroupNode(f"n{each}", created_at=NOW - age, ready=each >= unhealthy) for each in range(row["total"])]
    options = {key: row[key] for key in ("health_check_newest_nodes_percent", "max_unhealthy_nodes_percent")}
    options["unhealthy_node_grace_period"] = f"{grace}s"
    return classes.is_group_healthy(_rules(**options), nodes, now=NOW)


def health_most_recent(row: Input) -> object:
    names = row.get("nodes_newest_first")
    given = [GroupNode(name) for name in names or map(str, range(row.get("node_count", 0)))]
    found = classes.newest(given, row["health_check_newest_nodes_percent"])
    return {"count": len(found)} if names is None else [node.name for node in found]


def health_order(row: Input) -> object:
    return [node.name for node in classes.newest_first(_aged(row["ages_minutes"]))]


def health_taint_unhealthy(row: Input) -> object:
    return _unhealthy(row)


def scaled(row: Input) -> object:
    """One scan of a group that is described."""
    group: Input = row.get("group") or {}
    given, pods, cloud = row.get("nodes"), row.get("pods"), row.get("cloud_group") or {}
    if row.get("pods_list_error"):
        decision = scan.decide(_rules(), Observation(unlisted="unable to list pods"), Memory(), now=NOW)
        return {"nodes_delta": decision.delta, "error": decision.error}
    nodes = _nodes(given)
    seen = Observation(nodes, _pods(pods, nodes), _cloud(cloud))
    decision = scan.decide(_rules(**group), seen, Memory(), now=NOW)
    return {
        "nodes_delta": decision.delta,
        "error": decision.error or None,
        "cloud_target_after": seen.cloud.target_size + decision.target_change,
    }


def multi_run(row: Input) -> object:
    """Scans one after the other, with all of it done that was decided. Where the lock is held, no time goes by."""
    group = row["group"]
    known = _rules(**group)
    nodes = _nodes(row["nodes"])
    pods = _pods(row["pods"], nodes)
    cloud = CloudGroup(group["min_nodes"], group["max_nodes"], len(nodes))
    interval = re.fullmatch(r"\d+m", row["run_interval"])
    cached = row.get("cached_node_capacity")
    size = Resources() if not cached else Resources(*(cached.values() if isinstance(cached, dict) else cached))
    memory, now, deltas = Memory(node_size=size), NOW, []
    for _ in range(1 + row["then_runs"]):
        seen = Observation(nodes, pods, cloud)
        decision = scan.decide(known, seen, memory, now=now)
        memory = scan.remember(known, seen, memory, decision, now=now)
        deltas.append(decision.delta)
        gone = {node.name for node in decision.deletions}
        marked = {node.name for node in decision.taint.planned}
        nodes = tuple(_marked(node, now) if node.name in marked else node for node in nodes if node.name not in gone)
        cloud = replace(cloud, target_size=cloud.target_size + decision.target_change)
        now += durations.parse(interval[0]) if interval else 0
    return {"first_delta": deltas[0], "cloud_target_after_all_runs": cloud.target_size}


def node_capacity(row: Input) -> object:
    return _amounts(quantity.total([Resources(*each) for each in row["nodes_allocatable"]]))


def node_empty(row: Input) -> object:
    nodes = [] if row["missing_from_map"] else [GroupNode("n")]
    pods = [GroupPod(f"p{at}", node="n", of_node=kind == "DaemonSet") for at, kind in enumerate(row["pod_owner_kinds"])]
    found = PodsByNode.group(nodes, pods)
    remaining = found.remaining("n")
    return {"empty": found.is_empty("n"), "pods_remaining": remaining or 0, "ok": remaining is not None}


def node_info_map(row: Input) -> object:
    pods = [GroupPod(f"p{at}", node=node) for at, node in enumerate(row["pod_nodes"])]
    found = PodsByNode.group(map(GroupNode, row["nodes"]), pods).by_node
    return {"keys": list(found), "pod_counts": {name: len(pods) for name, pods in found.items()}}


def node_label_filter(row: Input) -> object:
    labels = dict(row["labels"])
    return observation.takes_node(_rules(label_key=row["label_key"], label_value=row["label_value"]), labels)


def node_unhealthy(row: Input) -> object:
    age = 60 if row.get("younger_than_grace") else 1200
    ready = row.get("ready") == "True"
    node = GroupNode("n", created_at=NOW - age, cordoned=row.get("cordoned", False), ready=ready)
    return classes.is_unhealthy(node, grace_seconds=600, now=NOW)


def pod_default_filter(row: Input) -> object:
    return observation.takes_pod(_rules(name="default"), _pod(row["pod"]))


def pod_group_filter(row: Input) -> object:
    known = _rules(name="named", label_key=row["label_key"], label_value=row["label_value"])
    return observation.takes_pod(known, _pod(row["pod"]))


def pod_requests(row: Input) -> object:
    pods = [observation.read_pod(_pod(each)) for each in row["pods"]]
    return _amounts(quantity.total([pod.requests for pod in pods]))


def remove_force_tainted(row: Input) -> object:
    nodes = _numbered(row["force_tainted"], no_delete=row.get("no_delete_annotation", ""))
    pods = [] if row["empty"] else [GroupPod("p", node=node.name) for node in nodes]
    return -sum(each.goes for each in reaping.force_tainted_statuses(nodes, PodsByNode.group(nodes, pods)))


def remove_tainted(row: Input) -> object:
    """Rows of counts are of nodes tainted an hour ago; rows of ages are of a single one."""
    is_single = "taint_age_s" in row
    age = row.get("taint_age_s", 3600)
    nodes = [_marked(node, NOW - age) for node in _numbered(row.get("tainted", 1))]
    protected = row.get("annotated_no_delete", int(bool(row.get("no_delete_annotation"))))
    nodes = [replace(node, no_delete="keep") if at < protected else node for at, node in enumerate(nodes)]
    many = row.get("pods_on_nodes", 0 if row.get("node_empty", True) else 1)
    pods = tuple(GroupPod(f"p{at}-{node.name}", node=node.name) for node in nodes for at in range(many))
    options = {
        "soft_delete_grace_period": f"{row['soft_s']}s" if is_single else row.get("soft", ""),
        "hard_delete_grace_period": f"{row['hard_s']}s" if is_single else row.get("hard", ""),
        "unhealthy_node_grace_period": row.get("unhealthy_node_grace_period", ""),
    }
    verdicts = reaping.tainted_statuses(
        _rules(**options),
        nodes,
        PodsByNode.group(nodes, pods),
        healthy_may_go=row.get("healthy_removable", True),
        now=int(NOW),
    )
    count = sum(each.goes for each in verdicts)
    return {"delete": count > 0} if is_single else -count


def scale_down_taint(row: Input) -> object:
    known = _rules(min_nodes=row["min_nodes"], max_nodes=100, **_removing(row["nodes_delta"]))
    seen = Observation(_numbered(row["untainted"]), (), CloudGroup(row["cloud_min"], 100, row["cloud_target"]))
    decision = scan.decide(known, seen, Memory(), now=NOW)
    errors = (each for each in decision.refusals if each.endswith("Taking no action"))
    return {"tainted": decision.taint.count, "error": next(errors, None)}


def scale_lock(row: Input) -> object:
    since = row["seconds_since_lock"]
    memory = Memory(lock=None if since is None else ScaleLock(NOW - since, 1))
    known = _rules(scale_up_cool_down_period=f"{row['scale_up_cool_down_period_s']}s")
    return {"locked": memories.lock_state(known, memory, now=NOW)}


def scale_up_delta(row: Input) -> object:
    """The row's percentages are those of its amounts."""
    demand = Resources(row["cpu_request_milli"], row["mem_request_bytes"])
    capacity = Resources(row["cpu_capacity_milli"], row["mem_capacity_bytes"])
    utilized = arithmetic.utilization(demand, capacity, row["untainted_nodes"])
    assert [_told(utilized.cpu_percent), _told(utilized.memory_percent)] == [row["cpu_percent"], row["mem_percent"]]
    threshold = row["scale_up_threshold_percent"]
    node = Resources(row["cached_node_cpu_milli"], row["cached_node_mem_bytes"])
    try:
        if utilized.is_from_zero:
            return {"delta": arithmetic.nodes_from_zero(demand, node, threshold), "error": None}
        return {"delta": arithmetic.nodes_more(utilized, threshold, row["untainted_nodes"]), "error": None}
    except Uncomputable as problem:
        return {"error": str(problem)}


def sort_nodes(row: Input) -> object:
    """Either order, each of which is one row's. To tell nanoseconds apart, the clock begins at one of the instants."""
    epoch = durations.instant("2018-01-01T01:01:01Z")
    nodes = [GroupNode(str(at), created_at=_since(epoch, text)) for at, text in enumerate(row["created"])]
    orders = [
        [int(node.name) for node in ordered] for ordered in (classes.oldest_first(nodes), classes.newest_first(nodes))
    ]
    return {"order": Holds(lambda claim: claim in orders)}


def taint_instances(row: Input) -> object:
    """The nodes are given in the order in which they are to be taken: the oldest first."""
    order = row["sorted_bundle_indices"]
    nodes = tuple(GroupNode(f"n{at}", float(order.index(at)), SIZE) for at in range(len(order)))
    known = _rules(min_nodes=0, max_nodes=100, dry_mode=row["dry"], **_removing(row["max"]))
    return _tainted(known, nodes)


def taint_oldest(row: Input) -> object:
    found = [
        _tainted(_rules(max_nodes=100, dry_mode=dry, **_removing(row["n"])), _created(row)) for dry in (False, True)
    ]
    assert found[0]["indices"] == found[1]["indices"]
    return found[0]


def taint_ops(row: Input) -> object:
    existing = tuple(Taint(each) if isinstance(each, str) else msgspec.convert(each, Taint) for each in row["existing"])
    effect = row.get("effect", "")
    if row["op"] == "get_time":
        try:
            return {"time": taints.tainted_at(existing), "error": None}
        except InvalidInput:
            return {"time": None, "error": "number parse error"}
    if row["op"] == "delete":
        return {"api_update": taints.without_scan_taint(existing) is not None, "error": None}
    found = taints.with_scan_taint(existing, now=NOW, effect=effect)
    if found is None:
        return {"api_update": False}
    taint = {**msgspec.to_builtins(found[-1]), "value": Holds(lambda _: found[-1].value == str(int(NOW)))}
    return {"taint": taint, "api_update": True}


def threshold_decision(row: Input) -> object:
    options = {key: value for key, value in row.items() if key != "utilisation_percent"}
    found = scan.thresholds(_rules(**options), GroupUtilization(row["utilisation_percent"], 0))
    return {"code": CODES[found], "docs": _UNTOLD}


def untaint_newest(row: Input) -> object:
    nodes = _created(row)
    found = scan_context.untaintable(
        _rules(unhealthy_node_grace_period=row["unhealthy_node_grace_period"]), nodes, now=NOW
    )
    return {"indices": [nodes.index(node) for node in found[: row["n"]]]}


def yaml_decode(row: Input) -> object:
    if "values" in row:
        return {
            "seconds": [AwsOptions(fleet_instance_ready_timeout=each).fleet_ready_seconds for each in row["values"]]
        }
    try:
        found = node_groups.decode(row["yaml"], "row")
    except InvalidInput:
        return {"error": True, "groups": []}
    return {"error": False, "count": len(found), "first": msgspec.to_builtins(found[0])}


def _rules(**options: Any) -> ScanRules:
    return rules.scan_rules(_group(options))


def _group(options: Mapping[str, Any]) -> NodeGroup:
    """The one group of a file."""
    (found,) = node_groups.decode(json.dumps({"node_groups": [{**options, "compat": "escalator"}]}), "row")
    return found


def _removing(count: int) -> dict[str, int]:
    """Options of a group that wants so many nodes less, as it has no pods."""
    return {
        "taint_lower_capacity_threshold_percent": 10,
        "taint_upper_capacity_threshold_percent": 40,
        "scale_up_threshold_percent": 70,
        "fast_node_removal_rate": count,
    }


def _told(percent: float) -> object:
    return MARKER if percent == arithmetic.FROM_ZERO else percent


def _amounts(found: Resources) -> dict[str, int]:
    return {"cpu_milli": found.cpu_milli, "mem_bytes": found.memory_bytes}


def _cloud(given: Input) -> CloudGroup:
    return CloudGroup(given["min"], given["max"], given["target"])


def _numbered(count: int, size: Resources = SIZE, **more: Any) -> tuple[GroupNode, ...]:
    return tuple(GroupNode(f"n{each}", NOW - 3600, size, **more) for each in range(count))


def _aged(minutes: dict[str, float]) -> list[GroupNode]:
    return [GroupNode(name, created_at=NOW - 60 * age) for name, age in minutes.items()]


def _age(creation: str, grace: float) -> float:
    """Of "now", "now-grace", "now-2*grace", "now-grace/2", "now-5m"."""
    found = re.fullmatch(r"now(?:-(?:(?P<by>[\d.]+)\*)?grace(?:/(?P<parts>[\d.]+))?|-(?P<text>[\dhms.]+))?", creation)
    if found is None:
        raise ValueError(f"a creation in unknown words: {creation}")
    if found["text"]:
        return durations.parse(found["text"])
    return grace * float(found["by"] or 1) / float(found["parts"] or 1) if "grace" in creation else 0.0


def _created(row: Input) -> tuple[GroupNode, ...]:
    return tuple(
        GroupNode(each["name"], durations.instant(each["created"]), SIZE, ready=each.get("ready", True))
        for each in row["nodes"]
    )


def _unhealthy(row: Input) -> list[str]:
    nodes = tuple(
        GroupNode(each["name"], NOW - 60 * each["age_min"], ready=each["ready"], cordoned=each.get("cordoned", False))
        for each in row["nodes"]
    )
    known = _rules(unhealthy_node_grace_period=row["grace"], health_check_newest_nodes_percent=100)
    return [node.name for node in scan.decide(known, Observation(nodes), Memory(), now=NOW).health_taints]


def _tainted(known: ScanRules, nodes: tuple[GroupNode, ...]) -> dict[str, object]:
    seen = Observation(nodes, (), CloudGroup(0, 100, len(nodes)))
    decision = scan.decide(known, seen, Memory(), now=NOW)
    after = scan.remember(known, seen, Memory(), decision, now=NOW)
    indices = [nodes.index(node) for node in decision.taint.planned]
    return {"indices": indices, "taint_tracker_len": len(after.dry_tainted)}


def _marked(node: GroupNode, now: float) -> GroupNode:
    found = taints.with_scan_taint(node.taints, now=now)
    return node if found is None else replace(node, taints=found)


def _nodes(given: object) -> tuple[GroupNode, ...]:
    """Counted, listed by age, or told in words."""
    if isinstance(given, str):
        return _told_nodes(given)
    if isinstance(given, list):
        return tuple(
            _state(GroupNode(f"n{at}", NOW - 3600 * each["age_hours"], SIZE), each["tainted"])
            for at, each in enumerate(given)
        )
    assert isinstance(given, dict)
    untainted: int = given["untainted"] if "untainted" in given else given["count"]
    nodes = _numbered(untainted + given.get("tainted", 0), Resources(given["cpu_milli"], given["mem_bytes"]))
    return tuple(_state(node, at >= untainted) for at, node in enumerate(nodes))


def _state(node: GroupNode, tainted: bool) -> GroupNode:
    """Tainted ones are so as of this scan."""
    return _marked(node, NOW + 1) if tainted else node


def _told_nodes(words: str) -> tuple[GroupNode, ...]:
    """ "5 x {cpu 1000m, mem 1000}", "5 untainted + 5 tainted x {1000m,1000}", "3 untainted + 2 cordoned"."""
    counts, _, size = words.partition(" x ")
    amounts = [int(each) for each in re.findall(r"\d+", size)] or [1000, 1000]
    allocatable = Resources(amounts[0], amounts[-1])
    found: list[GroupNode] = []
    for part in counts.split(" + "):
        count, _, kind = part.partition(" ")
        for _ in range(int(count)):
            node = GroupNode(f"n{len(found)}", NOW - 3600, allocatable, cordoned=kind == "cordoned")
            found.append(_state(node, kind == "tainted"))
    return tuple(found)


def _pods(given: object, nodes: tuple[GroupNode, ...]) -> tuple[GroupPod, ...]:
    """Counted, or told in words; those that are counted are on no node."""
    if isinstance(given, str):
        return _told_pods(given, nodes)
    assert isinstance(given, dict)
    size = Resources(given["cpu_milli"], given["mem_bytes"])
    return tuple(GroupPod(f"p{each}", size) for each in range(given["count"]))


def _told_pods(words: str, nodes: tuple[GroupNode, ...]) -> tuple[GroupPod, ...]:
    found: list[GroupPod] = []

    def add(count: str, cpu: str, memory: str | None = None, node: str = "", phase: str = "Pending") -> None:
        size = Resources(int(cpu), int(memory or 0))
        found.extend(GroupPod(f"p{at}", size, node, phase, scheduled=bool(node)) for at in range(int(count)))

    if words == "1 small":
        add("1", "1", "1")
    elif match := re.fullmatch(r"(\d+) x \{(\d+)m,(\d+)\}", words):
        add(match[1], match[2], match[3])
    elif match := re.fullmatch(r"(\d+) scheduled pods per node of (\d+)m/(\d+)B .* \+ 1 \D*(\d+)m/(\d+)B", words):
        for node in nodes:
            add(match[1], match[2], match[3], node.name)
        add("1", match[4], match[5])
    elif match := re.fullmatch(r"\d+ Running (\d+)m pinned one per node \+ (\d+) Pending (\d+)m", words):
        for node in nodes:
            add("1", match[1], None, node.name, "Running")
        add(match[2], match[3])
    elif match := re.match(r"one (\d+)m pod, spec.nodeName=(\w+), PodScheduled=True, phase Pending", words):
        add("1", match[1], None, match[2])
    elif words != "none":
        raise ValueError(f"pods in unknown words: {words}")
    return tuple(found)


def _pod(given: Input) -> Pod:
    """A pod as the rows shorten it."""

    def resources(amounts: list[int]) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": f"{amounts[0]}m", "memory": amounts[1]}}}

    affinity: dict[str, object] | None = given.get("affinity")
    for terms, key in (
        ("required_terms", "requiredDuringSchedulingIgnoredDuringExecution"),
        ("preferred_terms", "preferredDuringSchedulingIgnoredDuringExecution"),
    ):
        if terms in given:
            written = [
                {"matchExpressions": [{"key": e["key"], "operator": e["op"], "values": e["values"]} for e in term]}
                for term in given[terms]
            ]
            listed = {"nodeSelectorTerms": written} if terms == "required_terms" else []
            affinity = {"nodeAffinity": {key: listed}}
    overhead = given.get("overhead")
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "annotations": given.get("annotations"),
                "ownerReferences": [{"kind": kind} for kind in given.get("owner_kinds", ())],
            },
            "spec": {
                "nodeSelector": given.get("node_selector"),
                "affinity": affinity,
                "containers": [resources(each) for each in given.get("containers", ())],
                "initContainers": [resources(each) for each in given.get("init", ())],
                "overhead": overhead and {"cpu": f"{overhead[0]}m", "memory": overhead[1]},
            },
        },
        Pod,
    )


def _since(epoch: float, text: str) -> float:
    """Seconds with the nanoseconds of the text."""
    fraction = re.search(r"\.(\d+)", text)
    whole = datetime.fromisoformat(re.sub(r"\.\d+", "", text)).timestamp()
    return whole - epoch + (float(f"0.{fraction[1]}") if fraction else 0.0)


_ADAPTERS: tuple[Callable[[Input], object], ...] = (
    auto_discover_min_max,
    calc_percent_usage,
    calculate_nodes_to_add,
    config_validation,
    dry_mode,
    exclude_unavailable_node_pods,
    filter_nodes,
    go_duration,
    health_count_unhealthy,
    health_filter_too_new,
    health_is_healthy,
    health_most_recent,
    health_order,
    health_taint_unhealthy,
    multi_run,
    node_capacity,
    node_empty,
    node_info_map,
    node_label_filter,
    node_unhealthy,
    pod_default_filter,
    pod_group_filter,
    pod_requests,
    remove_force_tainted,
    remove_tainted,
    scale_down_taint,
    scale_lock,
    scale_up_delta,
    sort_nodes,
    taint_instances,
    taint_oldest,
    taint_ops,
    threshold_decision,
    untaint_newest,
    yaml_decode,
)
_SCANS = ("exceeds_max_nodes", "max_node_age", "scale_decision", "scale_on_starve", "untaint_first")

ADAPTERS: dict[str, Callable[[Input], object]] = {
    **{adapter.__name__: adapter for adapter in _ADAPTERS},
    **dict.fromkeys(_SCANS, scaled),
}
