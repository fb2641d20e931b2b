"""What the isolation bench says of a machine that others use, and from which memory on it lets pods go."""

import pytest

from tests.bench.isolation import QUIET_SHARE, REACHED, Asked, Compared, CpuReading, Scenario


def test_what_the_cluster_did_not_use_of_the_cpu_time_and_what_a_hypervisor_took_is_others() -> None:
    before = CpuReading(at=10, everyone=100, cluster=40, stolen=1)
    later = CpuReading(at=20, everyone=115, cluster=51, stolen=2)
    assert before.share_of_others(later, cpus=2) == pytest.approx((15 - 11 + 1) / 20)
    behind = CpuReading(at=20, everyone=110.9, cluster=51, stolen=1)  # counters are not read at one moment
    assert before.share_of_others(behind, cpus=2) == 0


@pytest.mark.parametrize("busy", ["alone", "beside"])
def test_a_latency_that_others_may_have_made_is_named_as_such_and_a_throughput_is_not(busy: str) -> None:
    quiet, noisy = (Asked(3, 10, 150, 0, others) for others in (QUIET_SHARE, 2 * QUIET_SHARE))
    assert not any("MEANS NOTHING" in row.figure for row in Compared(quiet, quiet, 1, ("over evicted",)).rows("L0"))
    measured = {"alone": quiet, "beside": quiet} | {busy: noisy}
    p99, median, answers = Compared(**measured, mid_cores=1, fates=("over evicted",)).rows("L0")
    assert p99.figure.startswith("MEANS NOTHING")
    assert median.figure.startswith("MEANS NOTHING")
    assert answers.figure.startswith("answers")
    assert (f"10.0% {busy}" in answers.figure) or (f"10.0% of the CPUs {busy}" in answers.figure)


def test_a_row_stands_beside_the_service_alone_of_the_same_installation() -> None:
    alone, beside = Asked(2, 8, 150, 0, 0), Asked(3, 12, 140, 5, 0)
    assert [row.ratio for row in Compared(alone, beside, 1, ()).rows("L0")] == [1.5, 1.5, 140 / 150]


def test_evictions_begin_above_the_memory_in_use_at_the_installation_where_the_scenario_has_them() -> None:
    strategy = {
        evicts: Scenario("", evicts=evicts).installed(20)["colocationConfig"]["thresholds"]["clusterStrategy"]
        for evicts in (True, False)
    }
    assert strategy[True] == {"memoryEvictThresholdPercent": 20 + REACHED}
    assert strategy[False] == {"evictEnabled": False}
