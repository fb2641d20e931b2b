"""Thresholds of use are Koordinator's, and what cannot be is refused by its field."""

import json

import pytest

from shared.api import thresholds
from shared.api.nodemetric_spec import ResourceThresholds
from shared.errors import InvalidInput


def parsed(document: object) -> thresholds.ThresholdConfig:
    return thresholds.parse(json.dumps(document), source="cm")


def test_without_a_word_nothing_is_enabled_and_the_bounds_are_koordinators() -> None:
    for found in (thresholds.parse("", source="cm"), parsed({}), parsed({"clusterStrategy": None})):
        assert found.of(None) == ResourceThresholds()
    assert not ResourceThresholds(evict_enabled=True).evicts
    assert not ResourceThresholds(enable=True).evicts
    assert ResourceThresholds(enable=True, evict_enabled=True).evicts
    default = ResourceThresholds()
    assert (default.memory_evict_threshold_percent, default.memory_lower_percent) == (70, 68)
    assert (default.cpu_suppress_threshold_percent, default.cpu_satisfaction_lower_percent) == (65, None)


def test_koordinators_own_configuration_is_read_with_what_is_not_heeded() -> None:
    found = parsed(
        {
            "clusterStrategy": {
                "enable": True,
                "cpuSuppressThresholdPercent": 60,
                "cpuSuppressPolicy": "cpuset",
                "cpuEvictBESatisfactionUpperPercent": 80,
                "cpuEvictBESatisfactionLowerPercent": 40,
                "cpuEvictBEUsageThresholdPercent": 85,
                "cpuEvictTimeWindowSeconds": 60,
                "memoryEvictThresholdPercent": 80,
                "memoryEvictLowerPercent": None,
            }
        }
    )
    assert found.cluster == ResourceThresholds(
        enable=True,
        cpu_suppress_threshold_percent=60,
        cpu_satisfaction_upper_percent=80,
        cpu_satisfaction_lower_percent=40,
        cpu_usage_threshold_percent=85,
        memory_evict_threshold_percent=80,
    )


def test_the_first_strategy_that_selects_a_node_is_laid_over_the_clusters() -> None:
    found = parsed(
        {
            "clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 75},
            "nodeStrategies": [
                {"name": "db", "nodeSelector": {"matchLabels": {"pool": "db"}}, "evictEnabled": True},
                {"nodeSelector": {"matchLabels": {"pool": "db"}}, "enable": False},
            ],
        }
    )
    chosen = found.of({"pool": "db"})
    assert (chosen.evicts, chosen.memory_evict_threshold_percent) == (True, 75)
    assert not found.of({"pool": "web"}).evicts


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"clusterStrategy": {"memoryEvictThresholdPercent": 101}}, "clusterStrategy"),
        ({"clusterStrategy": {"memoryEvictThreshold": 70}}, "clusterStrategy"),
        ({"clusterStrategy": {"memoryEvictLowerPercent": 70}}, "clusterStrategy.memoryEvictLowerPercent"),
        (
            {"clusterStrategy": {"cpuEvictBESatisfactionLowerPercent": 40}},
            "clusterStrategy.cpuEvictBESatisfactionUpperPercent",
        ),
        (
            {
                "clusterStrategy": {
                    "cpuEvictBESatisfactionLowerPercent": 61,
                    "cpuEvictBESatisfactionUpperPercent": 80,
                }
            },
            "clusterStrategy.cpuEvictBESatisfactionLowerPercent",
        ),
        ({"clusterStrategy": []}, "clusterStrategy"),
        ({"clusterStrategy": "on"}, "clusterStrategy"),
        ({"strategy": {}}, "strategy"),
        ({"nodeStrategies": [{"nodeSelector": {}}]}, "nodeStrategies[0].nodeSelector"),
        ({"nodeStrategies": [{"enable": True}]}, "nodeStrategies[0].nodeSelector"),
        ({"nodeStrategies": {"a": 1}}, "nodeStrategies"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(document: object, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parsed(document)
    assert f"cm: {told}: " in str(refused.value)


def test_a_node_is_handed_what_later_versions_add_as_well() -> None:
    found = thresholds.delivered({"enable": True, "evictEnabled": True, "another": 1}, source="spec")
    assert found.evicts
    assert thresholds.delivered(None, source="spec") == ResourceThresholds()
    with pytest.raises(InvalidInput):
        thresholds.delivered({"memoryEvictThresholdPercent": "70"}, source="spec")
