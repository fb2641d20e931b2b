"""Reads the sources of a backtest, replays them, and compares promises with outcomes."""

import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from agent.backtest import study
from agent.backtest.engine import RESOURCES
from agent.backtest.study import Played, RecordedFleet, Result, Trial
from deploy import progress
from deploy.backtest import agents, fleets, matrix, on_dask, prometheus, tables
from deploy.backtest.options import Options
from deploy.backtest.samples import Samples
from deploy.backtest.server import PrometheusServer
from shared.errors import InvalidInput

PROGRAM = "headroom backtest"
_PREDICTORS = logging.getLogger("agent.predict_server")


class Run(NamedTuple):
    """One source, the result of its replay, and its scores."""

    source: str
    fleet: RecordedFleet
    played: Played
    results: Sequence[Result]


def runs(options: Options) -> Iterator[Run]:
    """The sources, one after another. Raises InvalidInput and HeadroomError."""
    with _quiet_predictors():
        requested = None if options.limits is None else tables.requested(options.limits)
        replayed = 0
        for samples in _samples(options):
            fleet = fleets.fleet(samples, requested, options.placement, _note, options.policy.training_aggregation)
            trial = Trial(
                RESOURCES.index(samples.unit.resource),
                options.models,
                options.target_percents,
                options.horizons_hours,
                options.policy,
            )
            played = _played(fleet, trial, options, samples.source)
            yield Run(samples.source, fleet, played, study.results(samples.source, trial, played))
            replayed += 1
        if not replayed:
            asked = ",".join(options.resources)
            raise InvalidInput(source="command line", field="--resource", value=asked, problem="no source is of that")


def _samples(options: Options) -> Iterator[Samples]:
    """The samples of every source for the requested resources."""
    for source in options.sources:
        if "://" in source:
            yield from _of_server(source, options)
            continue
        path = Path(source)
        if path.is_dir():
            yield from (agents.of_folder(path, resource, options.aggregate) for resource in options.resources)
            continue
        is_matrix = path.suffix == ".json"
        found = matrix.saved(path, options.unit) if is_matrix else tables.samples(path, options.unit, options.aggregate)
        found = replace(found, aggregate=found.aggregate or options.aggregate)
        if found.unit.resource in options.resources:
            yield found
        else:
            _note(f"{found.source} is of {found.unit.resource}, which is not asked for")


def _of_server(url: str, options: Options) -> Iterator[Samples]:
    period = options.period
    if url.startswith(agents.SCHEME):
        with PrometheusServer(url.removeprefix(agents.SCHEME), options.access) as server:
            yield from (agents.of_api(server, resource, period, options.aggregate) for resource in options.resources)
        return
    with prometheus.Prometheus(url, options.access) as server:
        for resource in options.resources:
            with progress.bar(f"{server.name} {resource}", period.end - period.start) as came:
                found = prometheus.samples(server, resource, period, came, options.aggregate)
            yield found


def _played(fleet: RecordedFleet, trial: Trial, options: Options, what: str) -> Played:
    """The result of a replay: in this process, in several, or on a cluster. Nodes are independent."""
    if not options.dask and options.workers == 1:
        with progress.bar(what, fleet.recorded.ticks) as ticked:
            return study.play(fleet, trial, ticked)
    with _parts_played(fleet, trial, options) as (count, parts), progress.bar(what, count) as ended:
        played = []
        for part in parts:
            played.append(part)
            ended(1)
        return study.joined(played)


@contextmanager
def _parts_played(fleet: RecordedFleet, trial: Trial, options: Options) -> Iterator[tuple[int, Iterable[Played]]]:
    """The number of parts, and the result of each in the order of nodes."""
    play = partial(study.play, trial=trial)
    if options.dask:
        with on_dask.connected(options.dask) as cluster:
            parts = fleet.parts(max(options.workers, cluster.threads))
            yield len(parts), cluster.each(play, parts)
    else:
        parts = fleet.parts(options.workers)
        with get_context("spawn").Pool(len(parts), _begin_worker) as pool:
            yield len(parts), pool.imap(play, parts)


def _begin_worker() -> None:
    """Ignores the keyboard in a worker: the parent process handles the interrupt, and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _PREDICTORS.setLevel(logging.CRITICAL)


@contextmanager
def _quiet_predictors() -> Iterator[None]:
    """Silences the predictors' log, which is noise over hundreds of nodes; failures are raised."""
    before = _PREDICTORS.level
    _PREDICTORS.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _PREDICTORS.setLevel(before)


def _note(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr)
