"""Decisions of earlier managers: brief, bounded, stored in a ConfigMap, and read by the next leader."""

import logging
import uuid
from collections.abc import Sequence

import msgspec

from manager.autoscaler.configmap_store import ConfigMapStore
from manager.autoscaler.reporting.schemas import Plan
from shared.errors import HeadroomError

logger = logging.getLogger(__name__)

KEY = "decisions"
MOST_BYTES = 256 << 10  # an API object can hold about 1 MiB
INTERVAL_SECONDS = 10.0  # minimum between two writes


class StoredRound(msgspec.Struct, frozen=True):
    """An iteration, and the process that decided it: each process numbers its iterations anew."""

    process: str
    round: Plan


_DECODER = msgspec.json.Decoder(list[StoredRound])


class DecisionHistory:
    """The iterations of all processes, the newest first. For the loop's thread, except `earlier`."""

    def __init__(self, kept: ConfigMapStore) -> None:
        self.earlier: tuple[Plan, ...] = ()
        """The iterations of other processes, as far as they were read."""
        self._kept = kept
        self._process = uuid.uuid4().hex[:8]
        self._others: list[StoredRound] = []
        self._is_read = False
        self._written: Plan | None = None  # the newest stored iteration
        self._next_at = 0.0

    def forget(self) -> None:
        """Drops the memory: another replica leads and writes."""
        self._is_read = False

    def store(self, rounds: Sequence[Plan], now: float) -> None:
        """Stores this process's `rounds`, which are brief and the newest first. `now` never goes back.

        A failed write is repeated with a later iteration.
        """
        try:
            if not self._is_read:
                self._read()
            if rounds and rounds[0] is not self._written and now >= self._next_at:
                self._next_at = now + INTERVAL_SECONDS
                self._kept.write(_encoded([*(StoredRound(self._process, each) for each in rounds), *self._others]))
                self._written = rounds[0]
        except HeadroomError as error:
            self._is_read = False
            logger.warning("the history of decisions was not kept: %s", error)

    def _read(self) -> None:
        text, _ = self._kept.read()
        try:
            found = _DECODER.decode(text or "[]")
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            logger.error("the history of decisions is passed by: %s: %s", self._kept.source, error)
            found = []
        self._others = [each for each in found if each.process != self._process]
        self.earlier = tuple(each.round for each in self._others)
        self._is_read = True


def _encoded(rounds: Sequence[StoredRound]) -> str:
    """The text of as many of them as fit."""
    lines: list[bytes] = []
    left = MOST_BYTES
    for each in rounds:
        line = msgspec.json.encode(each)
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    return f"[{b','.join(lines).decode()}]"
