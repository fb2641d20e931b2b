"""The conditions beside the prediction, which a reader needs to judge a report. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from agent.predict_server.prediction import NodePrediction
from shared import durations
from shared.api.core import Condition
from shared.api.meta import Wire, prepared
from shared.api.nodemetric import Interference

MODEL_READY = "ModelReady"
PREDICTOR_HEALTHY = "PredictorHealthy"
POLICY_ACCEPTED = "PolicyAccepted"
CGROUPS_READ = "CgroupsRead"
PODS_COMPLETE = "PodsComplete"
ENFORCER_READY = "EnforcerReady"
PROD_WAITS_MEASURED = "ProdWaitsMeasured"

MAX_MESSAGE = 1024  # of characters; it may quote a spec's text

Judgement: TypeAlias = tuple[bool, str, str]
"""Whether a condition is good, its reason and its message."""

_WAITS_KNOWN: Judgement = True, "PressureRead", "the waits of Prod pods are read from their cgroups"
_WAITS_UNKNOWN: Judgement = (
    False,
    "NoPressure",
    "the waits of Prod pods need cgroup v2 and a kernel with pressure (PSI)",
)


class Means(NamedTuple):
    """How usage is read, and whether the enforcer bounds pods; None without an enforcer."""

    source: str = ""
    enforcer: Judgement | None = None


class _ReportedPrediction(Wire, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class _ReportedStatus(Wire, frozen=True):
    prediction: _ReportedPrediction | None = None
    interference: Interference | None = None


@prepared
class ReportedNodeMetric(Wire, frozen=True):
    """What a NodeMetric's last report is needed for later."""

    status: _ReportedStatus | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        prediction = self.status.prediction if self.status else None
        return (prediction.conditions if prediction else None) or ()

    @property
    def interference(self) -> Interference | None:
        return self.status.interference if self.status else None


@dataclass(frozen=True)
class Circumstances:
    """Facts outside the prediction; an empty text means no problem.

    `report_problem` is the error in the spec's report policy, `source` the way usage is read and whether cgroups are
    the source, `pods_problem` the reason why the report does not list pods; `enforcer` is whether it
    bounds pods, with a reason in one word and a sentence; None without one. `prod_waits` is whether the waits of Prod
    pods are known, None for a node without any such pod.
    """

    report_problem: str = ""
    source: str = ""
    by_cgroups: bool = True
    pods_problem: str = ""
    enforcer: Judgement | None = None
    prod_waits: bool | None = None


def conditions(
    prediction: NodePrediction, circumstances: Circumstances, before: Iterable[Condition], now: float
) -> tuple[Condition, ...]:
    """A condition keeps the time of its last change."""
    failure = prediction.predictor_problem
    problems = "; ".join(filter(None, (prediction.policy_problem, circumstances.report_problem)))
    source = circumstances.source
    told = f"usage is read through {source}" if source else "usage is not read yet"
    fresh = {
        MODEL_READY: (
            (True, "Trained", _trained(prediction))
            if prediction.reclaimable is not None
            else (False, prediction.unclaimed.reason, f"nothing is claimed: {prediction.unclaimed.message}")
        ),
        PREDICTOR_HEALTHY: _judged(failure, "PredictorFailed", "Answering", f"the peak is that of {prediction.model}"),
        POLICY_ACCEPTED: _judged(problems, "InvalidPolicy", "Applied", "the policy of the spec is in force"),
        CGROUPS_READ: (circumstances.by_cgroups, "Cgroups" if circumstances.by_cgroups else "ProcessTrees", told),
        PODS_COMPLETE: _judged(
            circumstances.pods_problem, "ReportTooLarge", "WithinSize", "every measured pod is in the report"
        ),
    }
    if circumstances.enforcer is not None:
        fresh[ENFORCER_READY] = circumstances.enforcer
    if circumstances.prod_waits is not None:
        fresh[PROD_WAITS_MEASURED] = _WAITS_KNOWN if circumstances.prod_waits else _WAITS_UNKNOWN
    since = {(old.type, old.status): old.last_transition_time for old in before}

    def condition(kind: str, status: str, reason: str, message: str) -> Condition:
        changed = since.get((kind, status)) or durations.timestamp(now)
        return Condition(kind, status, reason, message[:MAX_MESSAGE], changed)

    return tuple(condition(kind, str(good), reason, message) for kind, (good, reason, message) in fresh.items())


def _judged(problem: str, reason: str, reason_if_good: str, message_if_good: str) -> Judgement:
    return (False, reason, problem) if problem else (True, reason_if_good, message_if_good)


def _trained(prediction: NodePrediction) -> str:
    """The condition; its reason says when nothing of a resource can be reclaimed, because users then ask for it."""
    steps = f"{prediction.prod.samples if prediction.prod else 0} training steps"
    answer = prediction.reclaimable
    return steps if answer is None or min(answer.result) > 0 else f"{steps}; {answer.explanation.reason}"
