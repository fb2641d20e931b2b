"""Which pods lend their unused requests, and which of them have too short a history for that. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agent.metric_cache import series
from agent.states_informer.pods import NodePod
from shared import quantity
from shared.quantity import Resources


@dataclass(frozen=True)
class Requests:
    """The requests of all lending pods, and the part of them whose history is too short to judge."""

    requested: Resources
    cold: Resources


@dataclass(frozen=True)
class ProdPod:
    """A pod of a lending class. A pod is `cold` while its history is too short: it then counts with its request.

    A `young` pod was created within the cold start; `age_seconds` is how long it has been observed. `workload` is the
    key of the model whose history stands in for the pod's own, where the pod's is short and the workload's is not. A
    pod without observations has no model.
    """

    pod: NodePod
    cold: bool
    observed: bool
    young: bool
    age_seconds: float = 0.0
    workload: str | None = None


def lenders(
    pods: Iterable[NodePod],
    observed_since: Callable[[str], float | None],
    samples: Callable[[str], int],
    now: float,
    *,
    cold_start_seconds: float,
    warm_up_samples: int,
) -> list[ProdPod]:
    """Judges each pod of a lending class by the policy.

    A pod's history begins with the later of its creation and the first time it was observed (`observed_since(key)` in
    Unix seconds, None if never or too long ago) and must be longer than the cold start, as in Koordinator.
    """

    def long_enough(since: float | None) -> bool:
        return since is not None and now - since > cold_start_seconds

    def judged(pod: NodePod) -> ProdPod:
        since = observed_since(pod.uid)
        age_seconds = 0.0 if since is None else max(0.0, now - since)
        lender = ProdPod(pod, True, since is not None, now - pod.created_at <= cold_start_seconds, age_seconds)
        if since is None or samples(pod.uid) < warm_up_samples:
            return lender
        if long_enough(max(pod.created_at, since)):
            return replace(lender, cold=False)
        key = series.of_workload(pod.workload)
        if pod.workload and long_enough(observed_since(key)) and samples(key) >= warm_up_samples:
            return replace(lender, cold=False, workload=key)
        return lender

    return [judged(pod) for pod in pods if pod.lends]


def requests(of: Iterable[ProdPod]) -> Requests:
    """The sums over the pods that hold their request."""
    holding = [lender for lender in of if lender.pod.holds_request]
    return Requests(
        quantity.total([lender.pod.request for lender in holding]),
        quantity.total([lender.pod.request for lender in holding if lender.cold]),
    )
