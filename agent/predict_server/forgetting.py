"""Requests to forget, and completed ones: each request is executed once, restarts included."""

import logging
from collections.abc import Mapping

from shared import durations
from shared.api import forgetting

logger = logging.getLogger(__name__)


class Forgetting:
    """`forgotten` maps a workload, or "" for all, to the instant (Unix seconds) up to which it was forgotten; `problem`
    is the refused part of the requests, and the reason.
    """

    def __init__(self, forgotten: Mapping[str, float] | None = None) -> None:
        self.forgotten = forgetting.newest(forgotten or {})
        self.problem = ""
        self._wanted = forgetting.NOTHING

    @property
    def last(self) -> tuple[str, float] | None:
        """The last forgotten key, and up to when."""
        return max(self.forgotten.items(), key=lambda item: item[1], default=None)

    def heed(self, annotations: Mapping[str, str]) -> None:
        """Reads the requests in the Node's annotations."""
        self._wanted = forgetting.read(annotations)

    def due(self, now: float) -> Mapping[str, float]:
        """What to forget now; logs a refusal once."""
        until, problems = forgetting.due(self._wanted, self.forgotten, now)
        problem = "; ".join(problems)
        if problem and problem != self.problem:
            logger.error("the annotation is invalid, so nothing was forgotten: %s", problem)
        self.problem = problem
        return until

    def done(self, of: str, until: float, models: int) -> None:
        """Records that `models` models were dropped."""
        self.forgotten = forgetting.newest({**self.forgotten, of: until})
        known = {"of": of or "node", "until": durations.timestamp(until), "models": models}
        logger.warning("recorded history deleted because an annotation requests it", extra=known)
