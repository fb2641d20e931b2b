"""The last configuration that could be read stays in effect."""

import pytest

from manager.nodeside import policy
from manager.nodeside.policy import ClusterPolicy
from manager.settings import ManagerSettings
from shared import names, settings
from shared.api.core import ConfigMap
from shared.errors import InvalidInput
from tests.unit.manager.objects import node


def config_map(text: str | None) -> ConfigMap:
    return ConfigMap(data=None if text is None else {names.CONFIG_KEY_COLOCATION: text})


def read(*texts: str | None) -> ClusterPolicy:
    known = ClusterPolicy()
    for text in texts:
        known = policy.next_policy(known, config_map(text), source="cm")
    return known


@pytest.mark.parametrize(
    "flag",
    [
        "--evictions-per-minute=1e300",
        "--writes-per-second=inf",
        "--writes-per-second=nan",
        "--write-burst=1000000000",
        "--evictions-per-minute=inf",
        "--lease-duration=100000000000",
        "--renew-deadline=inf",
        "--retry-period=1e300",
    ],
)
def test_a_setting_beyond_all_sense_is_refused_by_its_flag(flag: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings.load(ManagerSettings, program="manager", description="", argv=[flag], environment={})
    assert flag.partition("=")[0] in str(refused.value)


def test_before_anything_was_read_nothing_holds() -> None:
    assert ClusterPolicy().strategy(node()) is None
    assert read("{").strategy(node()) is None


def test_without_a_config_map_or_without_its_key_the_defaults_hold() -> None:
    absent = policy.next_policy(read('{"enable": true}'), None, source="cm")
    assert (absent.enabled, absent.settled) == (False, False)
    assert (read(None).enabled, read(None).settled) == (False, True)
    for known in (absent, read(None)):
        strategy = known.strategy(node())
        assert strategy is not None
        assert not strategy.enabled


def test_a_broken_config_map_leaves_the_last_good_one_and_says_what_is_wrong() -> None:
    known = read('{"enable": true, "degradeTimeMinutes": 7}', '{"enable": true, "degradeTimeMinutes": -1}')
    assert known.config.cluster.degrade_time_minutes == 7
    assert not known.settled
    assert str(known.problem) == "cm colocation-config: degradeTimeMinutes: -1: must be greater than 0"
    mended = policy.next_policy(known, config_map('{"enable": true}'), source="cm")
    assert (mended.problem, mended.settled, mended.config.cluster.degrade_time_minutes) == (None, True, 15)


def test_broken_thresholds_leave_the_last_good_ones_and_the_strategy_alone() -> None:
    def both(strategy: str, limits: str) -> ConfigMap:
        return ConfigMap(data={names.CONFIG_KEY_COLOCATION: strategy, names.CONFIG_KEY_THRESHOLDS: limits})

    good = '{"clusterStrategy": {"enable": true, "evictEnabled": true}}'
    known = policy.next_policy(ClusterPolicy(), both('{"enable": true}', good), source="cm")
    assert known.thresholds_of(node()).evicts
    broken = policy.next_policy(known, both('{"enable": false}', '{"clusterStrategy": 1}'), source="cm")
    assert broken.thresholds_of(node()).evicts
    assert (broken.enabled, broken.settled, broken.problem) == (False, True, None)
    assert str(broken.thresholds_problem) == "cm resource-threshold-config: clusterStrategy: 1: expected an object"
    other = policy.next_policy(known, both("{", "{}"), source="cm")
    assert (other.enabled, other.settled, other.thresholds_of(node()).evicts) == (True, False, False)
    assert not policy.next_policy(known, None, source="cm").thresholds_of(node()).evicts
