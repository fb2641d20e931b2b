"""Sends each iteration to its reports: always to the log, and on the leader to the history, the status ConfigMap and
Events.
"""

import logging
from collections.abc import Callable, Mapping

from manager.autoscaler.configmap_store import ConfigMapStore
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.reporting import events, status
from manager.autoscaler.reporting.decision_history import DecisionHistory
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.status import AutoscalerStatus
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.events import ObjectRef, Recorder

logger = logging.getLogger(__name__)


class Announcer:
    """A report that fails now is written with the next iteration, and never blocks one.

    `kept` is the status ConfigMap, None if disabled.
    """

    def __init__(
        self,
        decision_log: DecisionLog,
        history: DecisionHistory,
        recorder: Recorder | None,
        kept: ConfigMapStore | None,
        regarding: ObjectRef,
        may_write: Callable[[], bool],
        *,
        clock: Clock,
        max_nodes_total: int = 0,
    ) -> None:
        self._decision_log = decision_log
        self._history = history
        self._recorder = recorder
        self._kept = kept
        self._regarding = regarding
        self._may_write = may_write
        self._clock = clock
        self._max_nodes_total = max_nodes_total
        self._before: AutoscalerStatus | None = None
        self._last_reported: Iteration | None = None

    def announce(self, iteration: Iteration, uids: Mapping[str, str] | None = None) -> None:
        """Reports a finished iteration. `uids` are those of pods by "namespace/name"."""
        self._decision_log.note(iteration)
        if not self._may_write():
            self._before = self._last_reported = None
            self._history.forget()
            return
        self._history.keep(self._decision_log.rounds(brief=True), self._clock.monotonic())
        self._decision_log.earlier = self._history.earlier
        if self._recorder is not None:
            for told in events.events(
                iteration, self._regarding, uids=uids, max_nodes_total=self._max_nodes_total, before=self._last_reported
            ):
                self._recorder.event(*told)
            self._last_reported = iteration
        self._write(iteration)

    def _write(self, iteration: Iteration) -> None:
        if self._kept is None:
            return
        try:
            if self._before is None:
                text, _ = self._kept.read()
                self._before = None if text is None else status.read_status(text)
            said = status.autoscaler_status(iteration, self._before)
            self._kept.write(status.document(said), {status.ANNOTATION_LAST_UPDATED: status.go_time(iteration.time)})
            self._before = said
        except HeadroomError as error:
            self._before = None
            logger.warning("the status was not written: %s", error)
