"""Node auto-provisioning: label sets."""

from collections.abc import Callable
from typing import Any

from manager.autoscaler.scale_up import candidate_labels
from manager.autoscaler.scale_up.candidate_labels import Popularity, Selecting
from tests.conformance.matching import Holds, differences

Input = dict[str, Any]  # a row's input, JSON of the row's own making

# The document calls these compatible; they have different machine types, and it names no node that has two.
_CONTRADICTS_ITSELF = {"S1", "S4"}


def nap_labels(row: Input) -> object:
    pods = [Selecting(pod["node_selector"], 1, pod["cpu_milli"]) for pod in row["pods"]]
    ranked = candidate_labels.by_popularity(pods, Popularity.CPU)
    stats = [{"selector": dict(each.labels), "cpu_milli": each.weight} for each in ranked]
    best = candidate_labels.best_label_set(ranked, {}, Popularity.CPU)
    # A row asks for the statistics (a list) or for the labels they lead to.
    return Holds(lambda claim: not any(differences(claim, stats if isinstance(claim, list) else best)))


def seed_nap_labels(row: Input) -> object:
    def agrees(claim: object) -> bool:
        return isinstance(claim, dict) and all(
            candidate_labels.are_compatible(row[one], row[other]) is (other in claim[one])
            for one in claim
            for other in row
            if one != other and {one, other} != _CONTRADICTS_ITSELF
        )

    return {
        "document": Holds(agrees),
        "note": Holds(lambda _: not candidate_labels.are_compatible(row["S1"], row["S4"])),
    }


ADAPTERS: dict[str, Callable[[Any], object]] = {"nap_labels": nap_labels, "seed_nap_labels": seed_nap_labels}
