"""What was asked to be forgotten, and what has been: each request is honoured once, restarts included."""

import logging
from collections.abc import Mapping

from shared import durations
from shared.api import forgetting

logger = logging.getLogger(__name__)


class Forgetting:
    """`forgotten` is until when (Unix seconds) by workload, "" being all; `problem` what of the requests is not
    honoured, and why.
    """

    def __init__(self, forgotten: Mapping[str, float] | None = None) -> None:
        self.forgotten = forgetting.newest(forgotten or {})
        self.problem = ""
        self._wanted = forgetting.NOTHING

    @property
    def last(self) -> tuple[str, float] | None:
        """What was forgotten last, and until when."""
        return max(self.forgotten.items(), key=lambda item: item[1], default=None)

    def heed(self, annotations: Mapping[str, str]) -> None:
        """Takes in what the Node's annotations ask for."""
        self._wanted = forgetting.read(annotations)

    def due(self, now: float) -> Mapping[str, float]:
        """What is to be forgotten now; what is refused is logged once."""
        until, problems = forgetting.due(self._wanted, self.forgotten, now)
        problem = "; ".join(problems)
        if problem and problem != self.problem:
            logger.error("not forgotten: %s", problem)
        self.problem = problem
        return until

    def done(self, of: str, until: float, models: int) -> None:
        """Notes that so many models were dropped."""
        self.forgotten = forgetting.newest({**self.forgotten, of: until})
        known = {"of": of or "node", "until": durations.timestamp(until), "models": models}
        logger.warning("what was recorded is forgotten, as an annotation asks", extra=known)
