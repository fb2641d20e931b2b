"""Usage that is hard to predict: pods that peak together, growth, bursts, drifts, bad samples. Pure, by seed.

A node has some pods of one core each; a series has a row for each pod and a column for each tick, from midnight of a
Monday (UTC) on.
"""

from collections.abc import Callable, Mapping

import numpy as np

from agent.backtest import packing
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats

MONDAY = 1_760_313_600.0
DAY_SECONDS = 86_400.0

Series = Callable[[Floats, int, np.random.Generator], Floats]  # of days, pods and chance; shape (pods, ticks)


def _alike(common: Floats, pods: int, rng: np.random.Generator, noise: float) -> Floats:
    """Replicas: each pod follows what is common, with noise of its own."""
    return common * (1 + noise * rng.standard_normal((pods, len(common))))


def _common(of: Callable[[Floats], Floats], noise: float = 0.02) -> Series:
    return lambda days, pods, rng: _alike(of(days), pods, rng, noise)


def _sine(days: Floats) -> Floats:
    return 0.4 + 0.25 * np.sin(2 * np.pi * days)


def _saw(period_days: float, low: float, high: float) -> Callable[[Floats], Floats]:
    return lambda days: low + (high - low) * (days % period_days) / period_days


def _line(low: float, high: float, whole_days: float = 35.0) -> Callable[[Floats], Floats]:
    return lambda days: low + (high - low) * np.minimum(days / whole_days, 1.0)


def _step(day: float, before: float, after: float) -> Callable[[Floats], Floats]:
    return lambda days: np.where(days < day, before, after)


def _office(days: Floats) -> Floats:
    return np.where((days % 7 < 5) & (days % 1 > 1 / 3) & (days % 1 < 3 / 4), 0.5, 0.08)


def _every(hours: float, high: float, low: float = 0.1, minutes: float = 15.0) -> Callable[[Floats], Floats]:
    return lambda days: np.where((days * 24) % hours < minutes / 60, high, low)


def _month_end(days: Floats) -> Floats:
    return np.where((days > 27) & (days < 29), 0.8, 0.2 + 0.05 * np.sin(2 * np.pi * days))


def _bad_sample(times: float, at_day: float) -> Series:
    def series(days: Floats, pods: int, rng: np.random.Generator) -> Floats:
        usage = _alike(np.full(len(days), 0.2), pods, rng, 0.02)
        usage[:, np.searchsorted(days, at_day)] *= times
        return usage

    return series


def _walk(sigma: float, *, common: bool) -> Series:
    def series(days: Floats, pods: int, rng: np.random.Generator) -> Floats:
        steps = rng.standard_normal((1 if common else pods, len(days))) * sigma * np.sqrt(days[1] - days[0])
        walks = 0.05 + np.abs((np.cumsum(steps, axis=1) + 1.3) % 2 - 1) * 0.9  # reflected within 0.05 and 0.95
        return np.broadcast_to(walks, (pods, len(days))).copy()

    return series


def _apart(of: Callable[[Floats], Floats]) -> Series:
    """Each pod at another time of the day."""
    return lambda days, pods, rng: np.stack([of(days + shift) for shift in rng.uniform(0, 1, pods)])


def _pareto(shape: float) -> Series:
    return lambda days, pods, rng: 0.03 * (1 + rng.pareto(shape, (pods, len(days))))


def _one_large(days: Floats, pods: int, rng: np.random.Generator) -> Floats:
    usage = np.full((pods, len(days)), 0.05)
    usage[0] = np.where(rng.uniform(0, 1, len(days)) < 0.002, 0.95, 0.2)
    return usage


def _restarted(every_days: float) -> Callable[[Floats], Floats]:
    return lambda days: 0.1 + 0.08 * (days % every_days)


def _bursts(per_day: float, high: float) -> Series:
    def series(days: Floats, pods: int, rng: np.random.Generator) -> Floats:
        chance = per_day * (days[1] - days[0])
        return np.where(rng.uniform(0, 1, len(days)) < chance, high, 0.15) * np.ones((pods, 1))

    return series


SERIES: Mapping[str, Series] = {
    "zero": _common(lambda days: np.zeros(len(days))),
    "flat 25 %": _common(lambda days: np.full(len(days), 0.25)),
    "flat 80 %, 1 % noise": _common(lambda days: np.full(len(days), 0.8), 0.01),
    "flat 95 %": _common(lambda days: np.full(len(days), 0.95), 0.01),
    "daily batch": _common(_every(24, 0.7, minutes=90)),
    "office hours": _common(_office),
    "office hours, apart": _apart(_office),
    "Mondays": _common(lambda days: np.where(days % 7 < 1, 0.6, 0.1)),
    "sine, replicas": _common(_sine),
    "sine, exact replicas": _common(_sine, 0.0),
    "sine, apart": _apart(_sine),
    "sine of three days": _common(lambda days: 0.4 + 0.3 * np.sin(2 * np.pi * days / 3)),
    "sine of eleven days": _common(lambda days: 0.4 + 0.3 * np.sin(2 * np.pi * days / 11)),
    "sine that grows": _common(lambda days: (0.2 + 0.5 * days / 35) * (1 + 0.3 * np.sin(2 * np.pi * days))),
    "beats": _common(lambda days: 0.4 + 0.2 * np.sin(2 * np.pi * days) + 0.2 * np.sin(2 * np.pi * days / 1.3)),
    **{f"saw-tooth of {days:g} days": _common(_saw(days, 0.2, 0.7)) for days in (0.5, 1, 5, 9)},
    "saw-tooth of half a day, apart": _apart(_saw(0.5, 0.2, 0.7)),
    "heap at 85 %": _common(_saw(0.25, 0.7, 0.85), 0.01),
    "heap at 85 %, apart": _apart(_saw(0.25, 0.7, 0.85)),
    "falling saw-tooth": _common(lambda days: _saw(2, 0.2, 0.7)(-days)),
    "leak x6 in 35 days": _common(_line(0.1, 0.6)),
    "leak x4 in 35 days": _common(_line(0.2, 0.8)),
    "leak in 10 days": _common(_line(0.1, 0.8, 10)),
    "leak, exact": _common(_line(0.1, 0.6), 0.0),
    "leak in one pod of all": lambda days, pods, rng: np.vstack(
        [_line(0.1, 0.9)(days)[np.newaxis], np.full((pods - 1, len(days)), 0.15)]
    ),
    "growth 0.3 % a day": _common(lambda days: 0.3 * 1.003**days),
    "growth 1 % a day": _common(lambda days: 0.3 * 1.01**days),
    "growth 3 % a day": _common(lambda days: 0.2 * 1.03**days),
    "growth of office hours": _common(lambda days: _office(days) * (1 + days / 50)),
    **{f"leak with a restart each {days} days": _common(_restarted(days)) for days in (3, 6, 10)},
    "step x2": _common(_step(16, 0.2, 0.4)),
    "step x3": _common(_step(20, 0.2, 0.6)),
    "step up and down each week": _common(lambda days: np.where((days // 7) % 2 == 1, 0.6, 0.2)),
    "steps up each five days": _common(lambda days: 0.1 + 0.1 * (days // 5)),
    "role change down": _common(_step(18, 0.7, 0.1)),
    "role change down and back": _common(lambda days: np.where((days > 16) & (days < 27), 0.1, 0.5)),
    "month end": _common(_month_end),
    "five minutes each 25 hours": _common(_every(25, 0.7)),
    "spike each 49 hours": _common(_every(49, 0.8)),
    "spike each 9 days": _common(_every(9 * 24, 0.8)),
    "spike each 15 days": _common(_every(15 * 24, 0.9)),
    "bursts, one a day": _bursts(1, 0.6),
    "bursts, one a week": _bursts(1 / 7, 0.8),
    "bursts of one pod": _one_large,
    "bad sample x4, day 10": _bad_sample(4, 10),
    "bad sample x4, day 20": _bad_sample(4, 20),
    "bad sample x2, day 25": _bad_sample(2, 25),
    "Pareto 3": _pareto(3.0),
    "Pareto 1.5": _pareto(1.5),
    "white noise": lambda days, pods, rng: rng.uniform(0, 0.6, (pods, len(days))),
    "white noise, common": lambda days, pods, rng: rng.uniform(0, 0.6, (1, len(days))) * np.ones((pods, 1)),
    **{f"walks {sigma:g}": _walk(sigma, common=False) for sigma in (0.05, 0.2)},
    **{f"common walk {sigma:g}": _walk(sigma, common=True) for sigma in (0.02, 0.05, 0.2, 0.6)},
}


def fleet(
    names: list[str], *, pods: int, days: int, interval_seconds: float, seed: int = 0
) -> tuple[RecordedUsage, PodSchedule]:
    """A node for each of the named series."""
    ticks = round(days * DAY_SECONDS / interval_seconds)
    at = np.arange(ticks, dtype=np.float64) * interval_seconds / DAY_SECONDS
    rows = []
    for number, name in enumerate(names):
        usage = SERIES[name](at, pods, np.random.default_rng([seed, number]))
        rows.append(np.clip(usage, 0.0, 1.0))
    recorded = RecordedUsage(np.concatenate(rows), np.ones(pods * len(names)), MONDAY, interval_seconds)
    return recorded.capped_and_filled(), packing.static(np.repeat(np.arange(len(names)), pods), ticks)
