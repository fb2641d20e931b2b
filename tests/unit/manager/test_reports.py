"""Everything is said once: a refused version of the ConfigMap, a node's own bad strategy, a missing ConfigMap."""

import logging

import msgspec
import pytest

from manager.nodeside import policy
from manager.nodeside.noderesource.writing import Write
from manager.nodeside.policy import ClusterPolicy
from manager.nodeside.reports import EventReporter
from shared import names
from shared.api import colocation
from shared.api.core import ConfigMap
from shared.api.meta import ObjectMeta
from shared.names import Tier
from tests.unit.manager.objects import node
from tests.unit.manager.test_decisions import World


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


def test_a_version_of_the_config_map_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    reporter = EventReporter(None)
    broken = ConfigMap(metadata=ObjectMeta(name="c", resource_version="1"), data={names.CONFIG_KEY_COLOCATION: "{"})
    known = policy.next_policy(ClusterPolicy(), broken, source="cm")
    for _ in range(3):
        reporter.configured(known, broken)
    assert len(said(caplog)) == 1
    newer = msgspec.structs.replace(broken, metadata=ObjectMeta(name="c", resource_version="2"))
    reporter.configured(known, newer)
    assert len(said(caplog)) == 1


def test_a_missing_config_map_is_reported_once_and_again_after_it_was_there(caplog: pytest.LogCaptureFixture) -> None:
    reporter = EventReporter(None)
    for _ in range(2):
        reporter.configured(ClusterPolicy(), None)
    assert said(caplog) == ["the ConfigMap does not exist, so colocation is disabled"]
    reporter.configured(ClusterPolicy(), ConfigMap(metadata=ObjectMeta(name="c", resource_version="1")))
    reporter.configured(ClusterPolicy(), None)
    assert len(said(caplog)) == 1


def test_a_nodes_own_strategy_is_reported_when_what_is_wrong_with_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    reporter = EventReporter(None)
    config = colocation.parse('{"enable": true}', source="cm")
    for annotation, count in (("{", 1), ("{", 0), ("[", 1), ("{}", 0), ("{", 1)):
        annotated = node(annotations={names.ANNOTATION_COLOCATION_STRATEGY: annotation})
        meta = annotated.metadata
        strategy = colocation.for_node(config, name="n1", labels=None, annotations=meta.annotations)
        reporter.strategy(annotated, strategy)
        assert len(said(caplog)) == count, annotation
    reporter.forget("n1")


def test_a_node_that_is_written_is_a_line_in_the_log_and_its_terms_are_for_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.report("2")
    look = world.decisions.decide(world.node)
    assert isinstance(look.outcome, Write)
    for level, lines in ((logging.INFO, 1), (logging.DEBUG, 1 + len(Tier))):
        caplog.clear()
        with caplog.at_level(level):
            EventReporter(None).written(world.node, look.outcome, look.decision)
        assert len(caplog.records) == lines
        said = caplog.records[0].getMessage()
        assert said.startswith("Node written: kubernetes.io/mid-cpu absent -> 2000")
        assert "; mid none -> cpu 2 memory 1.00 GiB; batch none -> cpu " in said
        assert "Allocatable" not in said
