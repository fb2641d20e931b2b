"""Seeds whose faults break no rule, equal runs of equal seeds, and defects that must be found."""

import functools
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGALRM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation import faults, reached, search
from tests.simulation.conftest import PATIENCE_SECONDS
from tests.simulation.disk import Disk
from tests.simulation.nursery import Nursery
from tests.simulation.planted import DEFECTS
from tests.simulation.promises import DEBT, OWED, RUN, TARGET, PromiseChecks, Written
from tests.simulation.virtual import EPOCH, Process, World
from tests.support.apiserver import ROOT

NEW_SEEDS = 20  # of small clusters, an hour each with the time to settle
NEW_LARGE_SEEDS = 2
LARGE = ("--nodes=20", "--agents=3")
TRIED_SEEDS = 5
FEW = ("--seed=7", "--no-liveness")
PRODUCT = ("agent", "deploy", "manager", "shared")
FAILED_SEEDS = [
    flags.strip()
    for line in (Path(__file__).parent / "failed_seeds.txt").read_text().splitlines()
    if (flags := line.partition("#")[0]).strip()
]


@functools.cache
def digest_of_product() -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for file in sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")):
        found.update(file.read_bytes())
    return found.digest()


def new_seed(purpose: str, number: int) -> int:
    """Each change of the product has seeds of its own, which are the same wherever it is tested."""
    drawn = hashlib.blake2b(digest_of_product() + f"{purpose} {number}".encode(), digest_size=4).digest()
    return int.from_bytes(drawn) % 10**9


@pytest.fixture
def check(nursery: Nursery, record_property: Callable[[str, object], None]) -> Callable[[Sequence[str]], None]:
    """Runs a simulation, which must break no rule. The end of the suite's output says what none of them reached."""

    def check(flags: Sequence[str]) -> None:
        outcome = nursery.simulate([*flags, "--reached"])
        output, names = reached.split(outcome.output)
        record_property(reached.PROPERTY, sorted(names))
        assert outcome.status == 0, f"python -m tests.simulation {' '.join(flags)}\n{output}"

    return check


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(NEW_SEEDS))
def test_a_cluster_with_the_faults_of_a_new_seed_keeps_every_rule(
    number: int, check: Callable[[Sequence[str]], None]
) -> None:
    check(search.Run(new_seed("small", number), 40, more=search.NEW).flags)


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(NEW_LARGE_SEEDS))
def test_a_cluster_of_twenty_nodes_with_the_faults_of_a_new_seed_keeps_every_rule(
    number: int, check: Callable[[Sequence[str]], None]
) -> None:
    check(search.Run(new_seed("large", number), 40, more=(*search.NEW, *LARGE)).flags)


@pytest.mark.thorough
@pytest.mark.parametrize("flags", FAILED_SEEDS)
def test_a_seed_that_has_failed_keeps_every_rule(flags: str, check: Callable[[Sequence[str]], None]) -> None:
    check(flags.split())


def test_equal_seeds_write_the_same_whatever_the_order_of_hashes(nursery: Nursery) -> None:
    flags = (*FEW, "--minutes=8")
    said = [nursery.simulate(flags).output]
    for hash_seed in ("0", "1"):
        command = [sys.executable, "-m", "tests.simulation", *flags]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        said.append(run.stdout + run.stderr)
    hashes = [found and found[1] for found in (re.search(r"hash ([0-9a-f]{16})", each) for each in said)]
    assert hashes[0], said[0]
    assert len(set(hashes)) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_by_the_rule_that_it_breaks(name: str, nursery: Nursery) -> None:
    """By one of a few seeds: what a defect meets in a run changes with everything else that happens there."""
    defect = DEFECTS[name]
    said = []
    for seed in range(defect.seed, defect.seed + TRIED_SEEDS):
        run = search.Run(seed, defect.minutes, more=(f"--plant={name}", "--stop-at-first", *defect.flags))
        outcome = nursery.simulate(run.flags)
        if outcome.status == 1 and any(rule in outcome.output for rule in defect.rules):
            return
        said.append(outcome.output)
    pytest.fail("\n".join(said))


def told(outcomes: int, broken: int, owed: float) -> dict[str, object]:
    """A NodeMetric's status with the promises of cpu for an hour, at a target of 1 %."""
    promise = {
        "horizonSeconds": 3600,
        "targetViolationPercent": "1",
        "outcomes": outcomes,
        "cpuViolationPercent": f"{100 * broken / outcomes:.2f}",
        "cpuDebt": {"brokenPromises": f"{owed:.1f}"},
    }
    return {"prediction": {"promises": [promise]}}


def test_more_broken_promises_than_target_and_debt_allow_are_named() -> None:
    reported: list[str] = []
    checks, process = PromiseChecks(lambda rule, what: reported.append(rule), 3600), Process("agent")
    checks.check("node", told(100, broken=6, owed=3.0), Written(0.0, process, 0.0))
    assert not reported
    checks.check("node", told(100, broken=7, owed=3.0), Written(60.0, process, 0.0))
    assert reported == [TARGET]


def test_good_promises_from_before_do_not_excuse_those_that_break_now() -> None:
    reported: list[str] = []
    checks, process = PromiseChecks(lambda rule, what: reported.append(rule), 3600), Process("agent")
    for number, (outcomes, broken) in enumerate(((1000, 0), (1100, 5), (1110, 7))):
        assert not reported
        checks.check("node", told(outcomes, broken=broken, owed=3.0), Written(60.0 * number, process, 0.0))
    assert reported == [TARGET]


@pytest.mark.parametrize(("owed", "rules"), [(5.4, []), (5.6, [OWED])])
def test_a_debt_that_keeps_no_promise_from_breaking_is_named_though_gaps_take_the_outcomes(
    owed: float, rules: list[str]
) -> None:
    reported: list[str] = []
    checks = PromiseChecks(lambda rule, what: reported.append(rule), 3600)
    checks.check("node", told(10, broken=2, owed=owed), Written(0.0, Process("agent"), 0.0))
    assert reported == rules


def test_a_run_of_broken_promises_that_does_not_end_is_named() -> None:
    reported: list[str] = []
    checks, process = PromiseChecks(lambda rule, what: reported.append(rule), 3600), Process("agent")
    for number, (outcomes, broken) in enumerate(((5000, 0), (5010, 9), (5013, 12), (5026, 25))):
        assert RUN not in reported
        checks.check("node", told(outcomes, broken=broken, owed=30.0), Written(60.0 * number, process, 0.0))
    assert RUN in reported


@pytest.mark.parametrize(("owed", "rules"), [(1.5, []), (0.4, [DEBT])])
def test_a_debt_that_a_restart_forgives_is_named_and_one_that_outcomes_paid_is_not(
    owed: float, rules: list[str]
) -> None:
    """Of two promises owed at the last checkpoint, fifty outcomes pay for a half."""
    reported: list[str] = []
    checks, before, after = PromiseChecks(lambda rule, what: reported.append(rule), 3600), Process("1"), Process("2")
    for at, owes in ((0.0, 2.0), (60.0, 3.0)):
        checks.check("node", told(100, broken=3, owed=owes), Written(at, before, saved_at=30.0))
    checks.check("node", told(150, broken=3, owed=owed), Written(120.0, after, saved_at=90.0))
    assert reported == rules


def test_a_full_disk_takes_half_of_a_file_and_says_so_and_what_was_synced_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", os.fsync)  # what `install` replaces is put back
    disk = Disk()
    disk.install()

    def write(name: str, text: bytes) -> None:
        with (tmp_path / name).open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    write("before", b"synced")
    disk.full.add(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        write("after", b"12345678")
    assert (tmp_path / "after").read_bytes() == b"1234"
    disk.lose_unsynced(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"before": b"synced", "after": b""}


def test_by_a_clock_at_half_the_rate_a_wait_takes_twice_as_long_until_it_is_set_right() -> None:
    world, process, seen = World(), Process("drifts"), list[tuple[float, float, float]]()

    def look() -> None:
        for _ in range(2):
            world.park(10.0)
            seen.append((world.now, world.monotonic(), world.wall() - EPOCH))
            process.run_at(1.0, world.now)
            process.correct_wall(world.now)

    process.run_at(0.5, 0.0)
    world.spawn(look, "look", process)
    world.run(100.0)
    assert seen == [(20.0, 10.0, 10.0), (30.0, 20.0, 30.0)]


def test_a_wait_that_rounding_loses_ends_later_than_it_began() -> None:
    world, process = World(), Process("drifts")
    world.now = 2.0**40

    world.spawn(lambda: world.park(1e-9), "wait", process)
    world.run(2.0**41, ended=lambda: world.now > 2.0**40)
    assert 2.0**40 < world.now < 2.0**40 + 1


def test_a_branch_has_the_faults_of_its_run_up_to_a_moment_and_those_of_another_seed_after_it() -> None:
    targets = {"manager": ["manager-0"], "cloud": ["cloud"]}
    run, other = (faults.draw(seed, 3600.0, targets) for seed in (1, 2))
    made = faults.branched(run, other, at=1800.0)
    assert [each for each in made if each.at <= 1800.0] == [each for each in run if each.at <= 1800.0]
    assert [each.at for each in made if each.at > 1800.0] == [each.at for each in other if each.at > 1800.0]
    assert len({each.number for each in made}) == len(made)


@given(st.integers(1, 40).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1)))))
def test_shrinking_ends_with_just_the_faults_that_a_failure_takes(case: tuple[int, set[int]]) -> None:
    count, needed = case
    assert set(search.fewest(range(count), needed.issubset)) == needed


def test_a_simulation_that_takes_too_long_is_killed_and_the_next_one_runs() -> None:
    impatient = Nursery(1)
    try:
        assert impatient.simulate((*FEW, "--minutes=600")).status == -SIGALRM
        assert "usage:" in impatient.simulate(("--help",)).output
    finally:
        impatient.close()
