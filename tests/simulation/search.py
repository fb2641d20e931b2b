"""`python -m tests.simulation.search`: new seeds in parallel processes, and the fewest faults that break a rule."""

import argparse
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tests.simulation import reached
from tests.simulation.nursery import Nursery, Outcome

TIMEOUT_SECONDS = 3600
BRANCH_SEEDS = 10**9
NEW = ("--prediction-hour=10", "--budgets", "--drifts")  # what new seeds have, and the first ones that failed had not


@dataclass(frozen=True)
class Run:
    """One simulation. `faults` are the numbers of those that happen; None: all."""

    seed: int
    minutes: float
    faults: tuple[int, ...] | None = None
    more: tuple[str, ...] = ()  # flags

    def __str__(self) -> str:
        return f"python -m tests.simulation {' '.join(self.flags)}"

    @property
    def flags(self) -> list[str]:
        found = [f"--seed={self.seed}", f"--minutes={self.minutes:g}", *self.more]
        return found if self.faults is None else [*found, f"--faults={','.join(map(str, self.faults)) or 'none'}"]


def fewest(numbers: Sequence[int], breaks: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Numbers that still break a rule, of which no run of neighbours can be left out (Zeller's ddmin)."""
    left, size = tuple(numbers), max(1, len(numbers) // 2)
    while True:
        for begin in range(0, len(left), size):
            without = left[:begin] + left[begin + size :]
            if breaks(without):
                left = without
                break
        else:
            if size == 1:
                return left
            size = max(1, size // 2)
        size = min(size, max(1, len(left)))


def shrunk(run: Run, output: str, simulate: Callable[[Sequence[str]], Outcome]) -> Run:
    """The failing run with the fewest faults."""
    found = re.search(r"^faults: ([\d,]+)$", output, re.MULTILINE)
    if found is None:
        return run  # it broke down before its end, or without faults

    def breaks(faults: tuple[int, ...]) -> bool:
        return simulate(replace(run, faults=faults).flags).status == 1

    return replace(run, faults=fewest([int(each) for each in found[1].split(",")], breaks))


def branches(run: Run, seen: Mapping[str, float], count: int) -> list[Run]:
    """Runs that are the same up to a moment in which this one was where few are, and have other faults from then on."""
    chance = random.Random(run.seed)
    times = sorted({seen[name] for name in reached.rare() & seen.keys()})
    moments = chance.sample(times, min(count, len(times)))
    return [
        replace(run, more=(*run.more, f"--branch={at:.3f}:{BRANCH_SEEDS + run.seed + number}"))
        for number, at in enumerate(moments)
    ]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.search", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="how many")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated time of each, with faults")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--branches", type=int, default=0, help="more runs for each, from rare states that it reaches")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time")
    options, flags = parser.parse_known_args(argv)
    runs = [Run(options.first + number, options.hours * 60, more=(*NEW, *flags)) for number in range(options.seeds)]
    own = threading.local()  # each thread has a nursery
    nurseries: list[Nursery] = []
    found: list[Mapping[str, float]] = []

    def begin() -> None:
        own.nursery = Nursery(TIMEOUT_SECONDS)
        nurseries.append(own.nursery)

    def carry_out(run: Run) -> tuple[str, bool, Mapping[str, float]]:
        outcome = own.nursery.simulate([*run.flags, "--reached"])
        output, names = reached.split(outcome.output)
        if outcome.status == 0:
            return output, True, names
        least = shrunk(run, output, own.nursery.simulate)
        return f"{output}{run}\nwith the fewest faults: {least}\n", False, names

    done = failed = 0
    with ThreadPoolExecutor(options.processes, initializer=begin) as pool:
        for wanted in (options.branches, 0):
            more: list[Run] = []
            for run, (said, passed, names) in zip(runs, pool.map(carry_out, runs), strict=True):
                print(said, end="", flush=True)
                found.append(names)
                done, failed = done + 1, failed + (not passed)
                more += branches(run, names, wanted) if passed else []
            runs = more
    for each in nurseries:
        each.close()
    for line in reached.report(found):
        print(line)
    print(f"{done - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
