"""The predictors that are held against independent measurements are those that agents have."""

from agent.predict_server import plugins
from tests.bench import independent
from tests.bench.independent import COLUMNS


def test_all_of_them_are_known_by_name() -> None:
    for run in (*independent.RULES, *independent.BEFORE):
        assert plugins.members(run.model, source="test") == (run.model,)


def test_every_rule_was_measured_on_every_column() -> None:
    for measured in independent.RULES.values():
        assert list(measured) == [column.name for column in COLUMNS]


def test_where_pods_stay_a_shorter_cold_start_is_the_same_run() -> None:
    static, churned, machines = COLUMNS[0], COLUMNS[1], COLUMNS[4]
    short = independent.Run("percentile", cold_hours=2)
    assert independent.equivalent(short, static) == independent.Run("percentile")
    assert independent.equivalent(short, churned) == independent.equivalent(short, machines) == short
