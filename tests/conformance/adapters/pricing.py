"""The autoscaler's prices, ranks and expanders."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manager.autoscaler.expander import built_in, chain, priority, ranking
from manager.autoscaler.expander.contract import Expander, ExpanderContext
from manager.autoscaler.expander.option import Option, PodClass
from manager.autoscaler.expander.ranking import CLUSTER_AUTOSCALER
from manager.autoscaler.pricing import gce
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import EPHEMERAL_STORAGE, NVIDIA_GPU, Machine, Unpriced
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import InvalidInput
from shared.quantity import Amounts
from tests.conformance.matching import Holds

Input = dict[str, Any]  # a row's input, JSON of the row's own making

_NAME = "row/name"  # the label by which a row's machine has its price
MEMORY_PER_CORE_MIB = 3750  # of the machines behind the preferred sizes


class RowPricing:
    """The prices a row lists: of machines by name, and of pods that "request" one of their own name."""

    def __init__(self, node_price: Mapping[str, float], pod_price: Mapping[str, float]) -> None:
        self._node_price = node_price
        self._pod_price = pod_price

    def node_price(self, machine: Machine) -> float:
        return self._of(self._node_price, machine.labels[_NAME])

    def pod_price(self, requests: Amounts) -> float:
        names = ["stabilize"] if requests == CLUSTER_AUTOSCALER.stabilization else list(requests)
        return sum(self._of(self._pod_price, name) for name in names)

    @staticmethod
    def _of(prices: Mapping[str, float], name: str) -> float:
        if name not in prices:
            raise Unpriced(f"no price of {name}")
        return prices[name]


def price_expander(row: Input) -> object:
    options = [
        Option(
            group=given["group"],
            node_count=given["count"],
            machine=Machine({"cpu": given["node_cpu"]}, {_NAME: given["node"]}),
            classes=tuple(PodClass({name: 1}, 1) for name in given["pods"]),
            exists=given["exists"],
            has_gpu=given["gpu"],
        )
        for given in row["options"]
    ]
    model = RowPricing(row["node_price"], row["pod_price"])
    ranks = ranking.rank_options(options, model, CLUSTER_AUTOSCALER, row["preferred_cpu_milli"])
    return {
        "best": [option.group for option in ranking.best_options(ranks)],
        "scores": {each.option.group: each.rank.rank for each in ranks if each.rank},
    }


def suppress(row: Input) -> object:
    return ranking.suppress(row["unfitness"], row["node_count"])


def unfitness(row: Input) -> object:
    return ranking.unfitness(row["preferred_cpu_milli"], row["node_cpu_milli"])


def preferred_node(row: Input) -> object:
    cpu_milli = ranking.preferred_cpu_milli(CLUSTER_AUTOSCALER, row["cluster_nodes"])
    assert cpu_milli is not None
    cores = cpu_milli // 1000
    return {"cpu": cores, "memory_mib": cores * MEMORY_PER_CORE_MIB}


def seed_rank(row: Input) -> object:
    ratio = ranking.stabilized_price(row["C"], row["T"], row["X"])
    rank = ranking.suppress(row["unfitness"], 1) * ratio
    return {
        "exact_stabilized": ratio,
        "exact_ranked": rank,
        "document_stabilized": _about(ratio),
        "document_ranked": _about(rank),
    }


def gce_node_price(row: Input) -> object:
    if "cheaper" not in row:
        return GcePricing().node_price(_gce_machine(row))
    cheaper, expensive = (GcePricing().node_price(_gce_machine(row[which])) for which in ("cheaper", "expensive"))
    return {
        "cheaper_price": cheaper,
        "expensive_price": expensive,
        "relation": Holds(lambda _: cheaper < row["coefficient"] * expensive),
    }


def gce_pod_price(row: Input) -> object:
    requests = {
        "cpu": row["cpu_milli"],
        "memory": row["memory_bytes"],
        EPHEMERAL_STORAGE: row["ephemeral_bytes"],
        NVIDIA_GPU: row["gpus"],
    }
    return GcePricing().pod_price(requests)


def least_nodes(row: Input) -> object:
    counts = row["node_counts"]
    options = [Option(str(index), count, Machine({}), ()) for index, count in enumerate(counts)]
    return {"kept_indexes": [int(option.group) for option in _best(built_in.least_nodes, options)]}


def most_pods(row: Input) -> object:
    counts = row["pod_counts"]
    options = [Option(str(index), 1, Machine({}), (PodClass({}, count),)) for index, count in enumerate(counts)]
    return {"kept_indexes": [int(option.group) for option in _best(built_in.most_pods, options)]}


def least_waste(row: Input) -> object:
    pod = row.get("pod") or {"cpu": 0, "mem": 0}
    options = [
        Option(
            given["id"],
            given["count"],
            Machine({"cpu": given["cpu"], "memory": given["mem"]}),
            (PodClass({"cpu": pod["cpu"], "memory": pod["mem"]}, given["pods"]),),
        )
        for given in row["options"]
    ]
    return [option.group for option in _best(built_in.least_waste, options)]


def priorities(row: Input) -> object:
    options = [Option(group, 1, Machine({}), ()) for group in row["groups"]]
    try:
        given = row["priorities"]
        lines = "".join(f"{number}: {json.dumps(patterns)}\n" for number, patterns in given.items()) if given else ""
        parsed = priority.parse(lines, source="row")
    except InvalidInput:
        parsed = priority.Priorities()
    return [option.group for option in priority.choose(options, parsed).options]


def chained(row: Input) -> object:
    def containing(part: str) -> Callable[[Any], list[str]]:
        return lambda options: [option for option in options if part in option]

    filters = {f"filter-{number}": containing(part) for number, part in enumerate(row["substring_filters"])}
    steps = chain.filter_in_order(row["options"], filters, list(filters))
    left, last = steps[-1][1] if steps else row["options"], row["fallback_substring"]
    return next((option for option in left if last in option), left[0])


def _about(value: float) -> Holds:
    """The document's tables are cut after two digits, and multiplied after that."""
    return Holds(lambda claim: isinstance(claim, int | float) and math.isclose(claim, value, rel_tol=0.025))


def _gce_machine(given: Input) -> Machine:
    capacity = {
        "cpu": given["cpu_m"],
        "memory": given["mem_b"],
        EPHEMERAL_STORAGE: given.get("eph_b", 0),
        NVIDIA_GPU: given.get("gpus", 0),
    }
    labels = {gce.LABELS_INSTANCE_TYPE[0]: given["t"], gce.LABEL_ACCELERATOR: given.get("gpu_type", "")}
    annotations = {
        gce.ANNOTATION_BOOT_DISK_SIZE: str(given.get("disk", "")),
        gce.ANNOTATION_BOOT_DISK_TYPE: given.get("disk_type", ""),
        gce.ANNOTATION_LOCAL_SSD_COUNT: str(given.get("lssd_n", "")),
    }
    if given.get("spot"):
        labels[gce.LABELS_SPOT[1]] = "true"
    if given.get("lssd"):
        labels[gce.LABEL_LOCAL_SSD] = "true"
    return Machine(capacity, labels, annotations)


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "price_expander": price_expander,
    "suppress": suppress,
    "seed_suppress": suppress,
    "unfitness": unfitness,
    "preferred_node": preferred_node,
    "seed_rank": seed_rank,
    "gce_node_price": gce_node_price,
    "gce_pod_price": gce_pod_price,
    "least_nodes": least_nodes,
    "most_pods": most_pods,
    "least_waste": least_waste,
    "priority": priorities,
    "chain": chained,
}


def _best(expander: Callable[[AutoscalerSettings], Expander], options: Sequence[Option]) -> Sequence[Option]:
    return expander(AutoscalerSettings()).best_options(options, ExpanderContext())
