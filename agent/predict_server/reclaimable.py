"""The part of their requests that prod pods will not use: the basis of the Mid tier. Pure.

Seed koordinator-node-prediction, Mid-tier Overcommitment:
Reclaimable = max(0, reclaimRatio * Allocated[Prod] - Peak[Prod]), bounded by the node's room above the peak.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.metric_cache.series import Usage
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Candidates, History
from agent.predict_server.lenders import ProdPod, Requests
from shared import durations
from shared.explanation import Explanation, ResourceExplanation, Term, sentence
from shared.quantity import MILLI_PER_CORE, Resources

BOUND_REQUESTED = "requested"
BOUND_ALLOCATABLE = "allocatable"
BOUND_PEAK = "peak"  # the peak leaves nothing

UNKNOWN = "unknown"  # the candidate that replaces a failed predictor's: all requests

UNITS = ("milli", "bytes")
NOTHING = Resources()


@dataclass(frozen=True)
class Inputs:
    """All inputs of one result. `history` covers the prod pods and the system together.

    `candidates` are the predictor's possible peaks, by name; the largest counts. `lending` are the pods of the lending
    classes. `system_peak` is the system's largest sample in a week, which the peak of a predictor with a memory
    includes: a program of the node that is busy only for seconds, as in a control plane's start, can use all of a small
    node. `parameters` are the policy's terms for the explanation, for cpu and for memory.
    """

    allocatable: Resources
    requests: Requests
    history: History
    candidates: Mapping[str, Resources]
    ratio_percent: int
    now: float
    lending: Sequence[ProdPod] = ()
    parameters: tuple[Sequence[Term], Sequence[Term]] = ((), ())
    system_peak: Resources = NOTHING

    @property
    def model_peak(self) -> Resources:
        return largest(self.candidates)


@dataclass(frozen=True)
class Reclaimable:
    """`result` never exceeds requested - peak, nor allocatable - peak, unless a predictor has a rule of its own."""

    result: Resources
    peak: Resources
    explanation: Explanation


@dataclass(frozen=True)
class ReclaimableAmount:
    """An amount without its explanation; `rule` holds the rule's own terms, `bounds` the deciding term, by resource."""

    result: Resources
    peak: Resources
    bounds: tuple[str, str]
    rule: tuple[Sequence[Term], Sequence[Term]] = ((), ())


def compute(inputs: Inputs) -> Reclaimable:
    """The seed's formula, with sums over pods."""
    peak = inputs.model_peak
    entitled = inputs.requests.requested.percent(cpu=inputs.ratio_percent, memory=inputs.ratio_percent)
    by_request, by_node = entitled.minus(peak).floored(), inputs.allocatable.minus(peak).floored()
    cpu, memory = (
        BOUND_REQUESTED if asked <= room else BOUND_ALLOCATABLE for asked, room in zip(by_request, by_node, strict=True)
    )
    return explain(inputs, ReclaimableAmount(by_request.least(by_node), peak, (cpu, memory)))


def explain(inputs: Inputs, claim: ReclaimableAmount) -> Reclaimable:
    """A claim with all its terms."""
    mean, stdev = rounded_up(inputs.history.mean), rounded_up(inputs.history.stdev)
    time = durations.timestamp(inputs.now)
    cold = [lender.pod for lender in inputs.lending if lender.cold and lender.pod.holds_request]

    def explained(resource: int) -> ResourceExplanation:
        def term(name: str, amount: Resources, source: str) -> Term:
            return Term(name, amount[resource], UNITS[resource], source, time)

        winner = max(inputs.candidates, key=lambda name: inputs.candidates[name][resource])
        return ResourceExplanation(
            terms=(
                term("requested", inputs.requests.requested, "prod pods"),
                Term("reclaimRatio", inputs.ratio_percent, "percent", "policy"),
                term("mean", mean, "prediction"),
                term("stdev", stdev, "prediction"),
                *inputs.parameters[resource],
                *(term(name, amount, "predictor") for name, amount in inputs.candidates.items()),
                term("predictedPeak", inputs.model_peak, winner),
                *(term("coldRequest", pod.request, f"pod {pod.pod.metadata.key}") for pod in cold),
                term("coldRequests", inputs.requests.cold, "prod pods"),
                term("systemPeak", inputs.system_peak, "the system, in a week"),
                term("peak", claim.peak, "prediction"),
                term("allocatable", inputs.allocatable, "node"),
                *claim.rule[resource],
            ),
            bound=claim.bounds[resource] if claim.result[resource] else BOUND_PEAK,
            result=claim.result[resource],
        )

    cpu, memory = explained(0), explained(1)
    return Reclaimable(claim.result, claim.peak, Explanation(cpu, memory, _reason(cpu, memory)))


def _reason(cpu: ResourceExplanation, memory: ResourceExplanation) -> str:
    def said(resource: ResourceExplanation) -> str:
        told = {"requested", "peak", "allocatable"} | ({"systemPeak"} if resource.bound == BOUND_PEAK else set())
        return sentence(term for term in resource.terms if term.name in told)

    return f"cpu bound by {cpu.bound}: {said(cpu)}; memory bound by {memory.bound}: {said(memory)}"


def largest(amounts: Mapping[str, Resources]) -> Resources:
    """Per resource."""
    return Resources(*map(max, zip(*amounts.values(), strict=True)))


def smallest(amounts: Mapping[str, Resources]) -> Resources:
    """Per resource."""
    return Resources(*map(min, zip(*amounts.values(), strict=True)))


def in_integers(candidates: Candidates, horizon: int = 0) -> dict[str, Resources]:
    """The candidates of one node for one of the horizons, in whole milli-cores and bytes on the safe side."""

    def of(amount: Floats) -> Resources:
        rows = amount.reshape(-1, 2)  # one for all horizons, or one for each
        return rounded_up(Usage(*rows[min(horizon, len(rows) - 1)].tolist()))

    return {name: of(amount) for name, amount in candidates.items()}


def whole(amounts: Floats) -> list[Resources]:
    """Rows of whole milli-cores and bytes."""
    return [Resources(int(cpu_milli), int(memory_bytes)) for cpu_milli, memory_bytes in amounts.tolist()]


def standing_in(requests: Requests) -> dict[str, Resources]:
    """The peak in place of an unknown one: all requests, so that nothing is left."""
    return {UNKNOWN: requests.requested}


def rounded_up(usage: Usage) -> Resources:
    """The amounts as integers, on the safe side; a thousandth of a unit is float noise and is not rounded up."""
    return Resources(
        math.ceil(round(usage.cpu_cores * MILLI_PER_CORE, 3)),
        math.ceil(round(usage.memory_bytes, 3)),
    )
