"""Runs the probes of a pod beside its kubelet's loop, which never waits for one."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import NamedTuple

from deploy.local.kubelet import probes
from deploy.local.kubelet.lifecycle import Record
from deploy.local.kubelet.probes import Answer, Course, Execute, Kind, Result
from deploy.local.kubelet.wire import Probe, RunnableContainer


class Verdict(NamedTuple):
    """One answer of a probe, and where the probe stands with it."""

    kind: Kind
    probe: Probe
    answer: Answer
    result: Result


@dataclass
class _Probing:
    probe: Probe
    course: Course
    asked: Future[Answer] | None = None


@dataclass
class ContainerProber:
    """The probes of one run of a container. Not for several threads."""

    container: RunnableContainer
    executor: Executor
    execute: Execute
    host: str
    _all: dict[Kind, _Probing] = field(default_factory=dict)

    def begin(self, record: Record) -> None:
        """From now on probes are due. An adopted container goes on where it stood."""
        for kind, probe in probes.probes_of(self.container).items():
            passed = (kind is Kind.STARTUP and not record.unstarted) or (kind is Kind.READINESS and not record.unready)
            result = Result.PASSED if passed else Result.PENDING
            self._all[kind] = _Probing(probe, probes.begun(probe, record.started_at, result))

    def step(self, now: float) -> list[Verdict]:
        """Asks what is due, and returns what was answered since the last step."""
        answered = list(self._collect(now))
        startup = self._all.get(Kind.STARTUP)
        for kind, probing in self._all.items():
            idle = probing.asked is None and now >= probing.course.next_at
            if idle and probes.may_run(kind, startup.course if startup else None):
                probing.asked = self.executor.submit(probes.ask, probing.probe, self.container, self.execute, self.host)
        return answered

    def close(self) -> None:
        """The container is over; answers that are still to come do not count."""
        for probing in self._all.values():
            if probing.asked is not None:
                probing.asked.cancel()
        self._all.clear()

    def _collect(self, now: float) -> Iterator[Verdict]:
        for kind, probing in self._all.items():
            if probing.asked is None or not probing.asked.done():
                continue
            answer = probing.asked.result()
            probing.asked = None
            probing.course = probes.after(probing.course, probing.probe, answer, now)
            yield Verdict(kind, probing.probe, answer, probing.course.result)
