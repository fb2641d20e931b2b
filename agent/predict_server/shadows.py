"""Models beside the active one: they get the same input and outcomes, promise once an hour, and lend nothing."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agent.predict_server import plugins
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Candidates
from agent.predict_server.models import Situation
from agent.predict_server.plugins import Model
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.truth import NOTHING_JUDGED, Judged
from shared.api.nodemetric import MOST_SHADOWS
from shared.errors import InvalidInput

SOURCE = "settings"


class Shadows:
    """The shadows under the policy's parameters, by the identity of their promises; without the active model."""

    def __init__(self, names: Sequence[str], policy: PredictionPolicy, on_failure: Callable[[str], None]) -> None:
        """Raises InvalidInput for an unknown name, for more than 8 models, and for a model that cannot be created."""

        def refused(value: object, problem: str) -> InvalidInput:
            return InvalidInput(source=SOURCE, field="shadow_predictors", value=value, problem=problem)

        if len(names) > MOST_SHADOWS:
            raise refused(",".join(names), f"more than {MOST_SHADOWS}")
        if combined := [name for name in names if "(" in name]:
            raise refused(combined[0], "expected the name of one predictor")
        made = [Model(name, policy.parameters, source=SOURCE, on_failure=on_failure) for name in names]
        in_force = plugins.members(policy.predictor, source=SOURCE)
        self._models = {policy.identity(model.names): model for model in made if model.names != in_force}

    @property
    def names(self) -> dict[str, str]:
        """The name of each by its identity."""
        return {identity: model.name for identity, model in self._models.items()}

    def update(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        for model in self._models.values():
            model.update(keys, usages, time)

    def observe(self, judged: Mapping[str, Judged]) -> None:
        """Passes each model what it hears of its promises."""
        for identity, model in self._models.items():
            model.observe(*judged.get(identity, NOTHING_JUDGED))

    def set_clock(self, seconds: float) -> None:
        for model in self._models.values():
            model.set_clock(seconds)

    def candidates(self, situation: Situation) -> dict[str, Candidates]:
        """The candidates of the models that do not fail."""
        answers = {identity: model.peak(situation) for identity, model in self._models.items()}
        return {identity: found for identity, found in answers.items() if found is not None}

    def peaks(self, situation: Situation) -> dict[str, Floats]:
        """The peaks for the situation's single node, shape (horizons, 2), of the models that do not fail."""
        found = self.candidates(situation)
        return {identity: np.max(list(of.values()), axis=0)[:, 0] for identity, of in found.items()}

    def states(self) -> dict[str, bytes]:
        """The state of each for the checkpoint, by name."""
        return {name: state for model in self._models.values() for name, state in model.states().items()}

    def restore(self, states: Mapping[str, bytes]) -> None:
        for model in self._models.values():
            model.restore(states)
