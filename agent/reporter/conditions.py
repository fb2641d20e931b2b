"""The conditions beside the prediction, which a reader needs to judge a report. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.predict_server.prediction import NodePrediction
from shared import durations
from shared.api.core import Condition
from shared.api.meta import Wire, prepared

MODEL_READY = "ModelReady"
PREDICTOR_HEALTHY = "PredictorHealthy"
POLICY_ACCEPTED = "PolicyAccepted"
CGROUPS_READ = "CgroupsRead"
PODS_COMPLETE = "PodsComplete"

MAX_MESSAGE = 1024  # of characters; it may quote a spec's text


class _ReportedPrediction(Wire, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class _ReportedStatus(Wire, frozen=True):
    prediction: _ReportedPrediction | None = None


@prepared
class ReportedNodeMetric(Wire, frozen=True):
    """The conditions of a NodeMetric's last report."""

    status: _ReportedStatus | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        prediction = self.status.prediction if self.status else None
        return (prediction.conditions if prediction else None) or ()


@dataclass(frozen=True)
class Circumstances:
    """Facts outside the prediction; an empty text means no problem.

    `report_problem` is the error in the spec's report policy, `source` the way usage is read and whether cgroups are
    the source, `pods_problem` the reason why the report does not list pods.
    """

    report_problem: str = ""
    source: str = ""
    by_cgroups: bool = True
    pods_problem: str = ""


def conditions(
    prediction: NodePrediction, circumstances: Circumstances, before: Iterable[Condition], now: float
) -> tuple[Condition, ...]:
    """A condition keeps the time of its last change."""
    ready = prediction.reclaimable is not None
    problems = "; ".join(filter(None, (prediction.policy_problem, circumstances.report_problem)))
    fresh = (
        _condition(
            MODEL_READY,
            ready,
            "Trained" if ready else prediction.unclaimed.reason,
            _trained(prediction) if ready else f"nothing is claimed: {prediction.unclaimed.message}",
        ),
        _condition(
            PREDICTOR_HEALTHY,
            not prediction.predictor_problem,
            "PredictorFailed" if prediction.predictor_problem else "Answering",
            prediction.predictor_problem or f"the peak is that of {prediction.model}",
        ),
        _condition(
            POLICY_ACCEPTED,
            not problems,
            "InvalidPolicy" if problems else "Applied",
            problems or "the policy of the spec is in force",
        ),
        _condition(
            CGROUPS_READ,
            circumstances.by_cgroups,
            "Cgroups" if circumstances.by_cgroups else "ProcessTrees",
            f"usage is read through {circumstances.source}" if circumstances.source else "usage is not read yet",
        ),
        _condition(
            PODS_COMPLETE,
            not circumstances.pods_problem,
            "ReportTooLarge" if circumstances.pods_problem else "WithinSize",
            circumstances.pods_problem or "every measured pod is in the report",
        ),
    )
    since = {(old.type, old.status): old.last_transition_time for old in before}
    return tuple(
        Condition(
            type=new.type,
            status=new.status,
            reason=new.reason,
            message=new.message,
            last_transition_time=since.get((new.type, new.status)) or durations.timestamp(now),
        )
        for new in fresh
    )


def _trained(prediction: NodePrediction) -> str:
    """With the reason when nothing of a resource can be reclaimed, because users then ask for it."""
    steps = f"{prediction.prod.samples if prediction.prod else 0} training steps"
    answer = prediction.reclaimable
    return steps if answer is None or min(answer.result) > 0 else f"{steps}; {answer.explanation.reason}"


def _condition(kind: str, good: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True" if good else "False", reason=reason, message=message[:MAX_MESSAGE])
