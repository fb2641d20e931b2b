"""One simulation in this process: a seed in, and what it broke out."""

import argparse
import gc
import importlib
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation import stand_ins
from tests.simulation.virtual import WORLD, Process

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.faults import Fault

STEP_SECONDS = 600.0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=60.0, help="simulated time with faults")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--managers", type=int, default=2)
    parser.add_argument("--agents", type=int, default=1, help="nodes with real agents")
    parser.add_argument(
        "--prediction-hour",
        type=int,
        default=3600,
        help="seconds of an hour of the agents' prediction; below 3600 there are loads that surprise them",
    )
    parser.add_argument("--drifts", action="store_true", help="clocks drift, too")
    parser.add_argument("--budgets", action="store_true", help="users protect pods by disruption budgets")
    parser.add_argument("--branch", default="", help="SECONDS:SEED; from then on, the faults of another seed")
    parser.add_argument("--faults", default="all", help="numbers of the faults to keep, by commas; all; none")
    parser.add_argument("--kinds", default="", help="names of `FaultKind` to draw from, by commas; all by default")
    parser.add_argument("--log", default="", help="level of the product's log")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first rule that is broken")
    parser.add_argument("--no-liveness", action="store_true", help="end with the faults")
    parser.add_argument("--timeline", action="store_true", help="print faults, writes and calls of the cloud")
    parser.add_argument("--gap", type=float, default=25.0, help="mean seconds between two faults")
    parser.add_argument("--reached", action="store_true", help="print what was reached, for `reached.report`")
    parser.add_argument("--script", default="", help="one of `scripts.SCRIPTS`, in a cluster without faults")
    parser.add_argument("--plant", default="", help="a defect of `planted.DEFECTS`")
    return parser.parse_args(argv)


def prepare() -> None:
    """Puts the stand-ins in place and imports everything, once in a process."""
    stand_ins.install()
    from tests.simulation import cluster

    cluster.prepare()
    importlib.import_module("tests.simulation.invariants")
    importlib.import_module("tests.simulation.scripts")
    importlib.import_module("tests.simulation.timeline")
    importlib.import_module("tests.simulation.reached")
    gc.collect()
    gc.freeze()  # what all simulations share is not looked at again


def home() -> tempfile.TemporaryDirectory[str]:
    """A directory for the files of one simulation; in memory, if it can be."""
    in_memory = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="simulation-", dir=in_memory if os.path.isdir(in_memory) else None)


def _faults(options: argparse.Namespace, cluster: "Cluster") -> "tuple[Fault, ...]":
    from tests.simulation import faults

    seconds, targets = options.minutes * 60, cluster.targets
    kinds = [faults.FaultKind[each] for each in options.kinds.split(",") if each] or tuple(faults.FaultKind)

    def of(seed: int) -> "tuple[Fault, ...]":
        drawn = faults.draw(seed, seconds, targets, kinds, options.gap)
        drifts = faults.draw_drifts(seed, seconds, targets, len(drawn)) if options.drifts else ()
        return tuple(sorted((*drawn, *drifts), key=lambda fault: fault.at))

    drawn = of(options.seed)
    if options.branch:
        at, _, seed = options.branch.partition(":")
        drawn = faults.branched(drawn, of(int(seed)), float(at))
    if options.faults != "all":
        kept = {int(each) for each in options.faults.split(",") if each.isdecimal()}
        drawn = tuple(each for each in drawn if each.number in kept)
    return drawn


def main(argv: Sequence[str], home: Path) -> int:
    """Runs a simulation in a process that is prepared, and has run none."""
    options = parse(argv)
    stand_ins.seed(options.seed)
    from tests.simulation import reached, timeline, users
    from tests.simulation.cluster import Cluster, Size
    from tests.simulation.invariants import SETTLE_SECONDS, Invariants

    logging.basicConfig(level=options.log.upper() or "CRITICAL", format="%(name)s %(message)s")
    if not options.log:
        logging.disable(logging.CRITICAL)
    if options.script:
        from tests.simulation import scripts

        return scripts.play(options.script, home, options.seed)
    begun = stand_ins.process_cpu_seconds()
    size = Size(options.nodes, options.managers, options.agents, prediction_hour_seconds=options.prediction_hour)
    cluster = Cluster(size, home, options.seed)
    seconds = options.minutes * 60
    drawn = _faults(options, cluster)
    if options.plant:
        from tests.simulation import planted

        planted.DEFECTS[options.plant].plant()
    invariants = Invariants(cluster)
    invariants.watch()
    seen = reached.Reached()
    if options.reached:
        seen.install(cluster.faults)
    if options.timeline:
        timeline.tell(cluster, print)
    cluster.start()

    def begin() -> None:
        cluster.ready.wait()
        cluster.users = users.start(cluster.client("users"), options.seed, cluster.node_names)
        if options.budgets:
            WORLD.spawn(users.Budgets(cluster.client("users"), options.seed).run, "budgets")
        for node, loads in cluster.loads.items():
            WORLD.spawn(loads.run, f"loads of {node}")
        cluster.faults.schedule(drawn, cluster)

    WORLD.spawn(begin, "begin", Process("users"))
    gc.disable()
    at = 0.0
    while at < seconds:
        at = min(seconds, at + STEP_SECONDS)
        WORLD.run(at, lambda: options.stop_at_first and bool(invariants.violations))
        gc.collect()
        gc.freeze()  # what is left lives on, as a rule
        if options.stop_at_first and invariants.violations:
            break
    if cluster.users is not None:
        cluster.users.quiet = True
    if not (options.no_liveness or (options.stop_at_first and invariants.violations)):
        WORLD.run(seconds + SETTLE_SECONDS)
        invariants.check_liveness()
    for each in invariants.violations:
        print(f"  {each}")
    spent = stand_ins.process_cpu_seconds() - begun
    print(
        f"seed {options.seed}: {len(drawn)} faults, {cluster.journal.writes} writes, "
        f"{invariants.evictions} evictions, {spent:.1f} s CPU, "
        f"hash {cluster.journal.hash}"
    )
    if invariants.violations:
        print(f"faults: {','.join(str(each.number) for each in drawn)}")
    if options.reached:
        print(seen.line())
    return 1 if invariants.violations else 0
