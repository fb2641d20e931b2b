"""Peak predictors: what may a usage rise to, judged by its history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from agent.metric_cache.series import Usage


class History(NamedTuple):
    """What is known of one entity: decayed mean and population stdev, and how much they rest on.

    `first_observed` is in Unix seconds; `samples` counts training steps.
    """

    mean: Usage
    stdev: Usage
    samples: int
    first_observed: float


class Predictor(Protocol):
    """A model of the peak. Pure: everything it may know is in its arguments."""

    @property
    def name(self) -> str: ...

    def peak(self, history: History) -> Usage:
        """The predicted peak of the entity with this history."""
        ...


@dataclass(frozen=True)
class NSigmaV1:
    """mean + N * stdev of the usage of all pods together (seed koordinator-node-prediction, N-sigma Prediction)."""

    sigma: Usage
    name: ClassVar[str] = "n-sigma-v1"

    def peak(self, history: History) -> Usage:
        return Usage(
            history.mean.cpu_cores + self.sigma.cpu_cores * history.stdev.cpu_cores,
            history.mean.memory_bytes + self.sigma.memory_bytes * history.stdev.memory_bytes,
        )


# By name, made for one N per resource.
PREDICTORS: Mapping[str, Callable[[Usage], Predictor]] = {NSigmaV1.name: NSigmaV1}
