"""What prod pods requested and will not use: the number the Mid tier is made of. Pure.

Seed koordinator-node-prediction, Mid-tier Overcommitment:
Reclaimable = max(0, reclaimRatio * Allocated[Prod] - Peak[Prod]), bounded by what the node has above the peak.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.metric_cache.series import Usage
from agent.predict_server.models import History
from agent.states_informer.pods import NodePod
from shared import durations, quantity
from shared.explanation import Explanation, ResourceExplanation, Term, sentence
from shared.quantity import MILLI_PER_CORE, Resources

BOUND_REQUESTED = "requested"
BOUND_ALLOCATABLE = "allocatable"
BOUND_PEAK = "peak"  # the peak leaves nothing


@dataclass(frozen=True)
class Requests:
    """What the pods that lend have requested in all, and the part of it whose history is too short to be judged."""

    requested: Resources
    cold: Resources


@dataclass(frozen=True)
class Inputs:
    """Everything one answer depends on. `history` and `model_peak` are of the prod pods and the system together."""

    allocatable: Resources
    requests: Requests
    history: History
    sigma: Usage
    model_peak: Usage
    ratio_percent: int
    now: float


@dataclass(frozen=True)
class Reclaimable:
    """`peak` contains the requests of cold pods; `result` never exceeds requested nor allocatable - peak."""

    result: Resources
    peak: Resources
    explanation: Explanation


def requests(
    pods: Iterable[NodePod], observed_since: Callable[[str], float | None], now: float, cold_start: float
) -> Requests:
    """Sums the requests of pods that lend and hold their request.

    A pod is cold until its history is longer than `cold_start` seconds; history begins with the later of its creation
    and the first time it was observed (`observed_since(uid)`, None when it never was).
    """
    lending = [pod for pod in pods if pod.lends and pod.holds_request]
    cold = [pod.request for pod in lending if _is_cold(pod, observed_since(pod.uid), now, cold_start)]
    return Requests(quantity.total([pod.request for pod in lending]), quantity.total(cold))


def _is_cold(pod: NodePod, observed_since: float | None, now: float, cold_start: float) -> bool:
    return observed_since is None or now - max(pod.created_at, observed_since) <= cold_start


def compute(inputs: Inputs) -> Reclaimable:
    peak = rounded_up(inputs.model_peak).plus(inputs.requests.cold)
    entitled = inputs.requests.requested.percent(cpu=inputs.ratio_percent, memory=inputs.ratio_percent)
    by_request, by_node = entitled.minus(peak).floored(), inputs.allocatable.minus(peak).floored()
    result = by_request.least(by_node)
    mean, stdev = rounded_up(inputs.history.mean), rounded_up(inputs.history.stdev)
    model_peak = rounded_up(inputs.model_peak)
    time = durations.timestamp(inputs.now)

    def explained(index: int, unit: str, sigma: float) -> ResourceExplanation:
        def term(name: str, amount: Resources, source: str) -> Term:
            return Term(name, amount[index], unit, source, time)

        bound = BOUND_REQUESTED if by_request[index] <= by_node[index] else BOUND_ALLOCATABLE
        return ResourceExplanation(
            terms=(
                term("requested", inputs.requests.requested, "prod pods"),
                Term("reclaimRatio", inputs.ratio_percent, "percent", "policy"),
                term("mean", mean, "prediction"),
                term("stdev", stdev, "prediction"),
                Term("sigma", round(sigma * 100), "percent", "policy"),
                term("predictedPeak", model_peak, "prediction"),
                term("coldRequests", inputs.requests.cold, "prod pods"),
                term("peak", peak, "prediction"),
                term("allocatable", inputs.allocatable, "node"),
            ),
            bound=bound if result[index] else BOUND_PEAK,
            result=result[index],
        )

    cpu = explained(0, "milli", inputs.sigma.cpu_cores)
    memory = explained(1, "bytes", inputs.sigma.memory_bytes)
    return Reclaimable(result, peak, Explanation(cpu, memory, _reason(cpu, memory)))


def _reason(cpu: ResourceExplanation, memory: ResourceExplanation) -> str:
    def said(resource: ResourceExplanation) -> str:
        return sentence(term for term in resource.terms if term.name in ("requested", "peak", "allocatable"))

    return f"cpu bound by {cpu.bound}: {said(cpu)}; memory bound by {memory.bound}: {said(memory)}"


def rounded_up(usage: Usage) -> Resources:
    """As integers, on the safe side; a thousandth of a unit is float noise and not rounded up."""
    return Resources(
        math.ceil(round(usage.cpu_cores * MILLI_PER_CORE, 3)),
        math.ceil(round(usage.memory_bytes, 3)),
    )
