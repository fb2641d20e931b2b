"""Batch on its way to the Node: normalised cores, what others have given away, and annotations that mean nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import amplification, preparation, situation, third_party
from shared import names
from shared.errors import InvalidInput
from shared.explanation import Explanation, ResourceExplanation
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, node

RATIO = names.ANNOTATION_CPU_NORMALIZATION_RATIO
RAW = names.ANNOTATION_RAW_ALLOCATABLE
ALLOCATIONS = names.ANNOTATION_THIRD_PARTY_ALLOCATIONS
RESERVATION = names.ANNOTATION_NODE_RESERVATION
ORIGIN = names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE


def batch(cpu: int, memory: int = GIB) -> Explanation:
    return Explanation(ResourceExplanation((), "usage", cpu), ResourceExplanation((), "usage", memory), "why")


def given_away(*allocations: tuple[str, dict[str, Any]]) -> str:
    listed = [{"name": "yarn", "priority": priority, "resources": amount} for priority, amount in allocations]
    return json.dumps({"allocations": listed})


def prepared(of: Explanation, **annotations: str) -> tuple[int, int]:
    found = preparation.prepare(of, node(annotations=annotations))
    return found.cpu.result, found.memory.result


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ("1.20", 40_000),  # 39999.6
        ("1.00", 33_333),
        ("0.8", 33_333),
        ("5", 166_665),
        ("6", 33_333),
        ("-1", 33_333),
        ("0", 33_333),
        ("nan", 33_333),
        ("inf", 33_333),
        ("fast", 33_333),
        ("", 33_333),
    ],
)
def test_cpu_is_counted_in_normalised_cores_where_the_ratio_means_something(ratio: str, expected: int) -> None:
    assert prepared(batch(33_333), **{RATIO: ratio}) == (expected, GIB)
    zones = preparation.prepare_zones({1: Resources(33_333, GIB)}, node(annotations={RATIO: ratio}))
    assert zones == {1: Resources(expected, GIB)}


def test_kubernetes_is_offered_what_others_have_left() -> None:
    others = given_away(
        ("koord-batch", {names.BATCH_CPU: "10k", names.BATCH_MEMORY: "1Gi"}),
        ("koord-batch", {names.BATCH_CPU: 5000}),
        ("koord-mid", {names.BATCH_CPU: "10k"}),
        ("koord-batch", {"example.com/gpu": "lots"}),
    )
    assert prepared(batch(50_000, 4 * GIB), **{ALLOCATIONS: others}) == (35_000, 3 * GIB)
    assert prepared(batch(14_999, GIB // 2), **{ALLOCATIONS: others}) == (0, 0)


def test_each_step_is_a_term_and_what_there_was_before_is_known() -> None:
    others = given_away(("koord-batch", {names.BATCH_CPU: "10k"}))
    found = preparation.prepare(batch(50_000), node(annotations={RATIO: "1.20", ALLOCATIONS: others}))
    assert [(term.name, term.value, term.unit) for term in found.cpu.terms] == [
        ("cpu_normalization_ratio", 120, "percent"),
        ("before_third_party", 60_000, "milli"),
        ("third_party", 10_000, "milli"),
    ]
    assert (found.cpu.bound, found.cpu.result, found.reason) == ("usage - third_party", 50_000, "why")
    assert all(term.source for term in found.cpu.terms)
    assert preparation.origin(found) == Resources(60_000, GIB)


def test_without_annotations_nothing_is_done() -> None:
    explained = batch(50_000)
    assert preparation.prepare(explained, node()) is explained
    assert preparation.origin(explained) == Resources(50_000, GIB)
    assert preparation.problems(node()) == ()


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (RATIO, "fast"),
        (RAW, "{"),
        (RAW, '{"cpu": "lots"}'),
        (RAW, '{"cpu": "-1"}'),
        (RAW, '["cpu"]'),
        (RAW, "null"),
        (RESERVATION, "{"),
        (RESERVATION, '{"reservedCPUs": "0-3, 8"}'),
        (RESERVATION, '{"reservedCPUs": "1_0"}'),
        (RESERVATION, '{"reservedCPUs": "0-"}'),
        (RESERVATION, '{"resources": {"cpu": "four"}}'),
        (ALLOCATIONS, "{"),
        (ALLOCATIONS, '{"allocations": {}}'),
        (ALLOCATIONS, given_away(("koord-batch", {names.BATCH_CPU: "many"}))),
        (ALLOCATIONS, given_away(("koord-batch", {names.BATCH_CPU: "-10k"}))),
        (ALLOCATIONS, "[" * 100_000),
    ],
)
def test_an_annotation_that_means_nothing_is_ignored_and_named(annotation: str, text: str) -> None:
    one = node(cpu="4", memory="4Gi", annotations={annotation: text})
    assert preparation.prepare(batch(50_000), one) == batch(50_000)
    assert situation.facts(one).allocatable == Resources(4_000, 4 * GIB)
    assert situation.facts(one).reserved == Resources()
    (problem,) = preparation.problems(one)
    assert (problem.source, problem.field) == ("Node n1 annotation", annotation)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"cpu": "2"}, Resources(2_000, 4 * GIB)),
        ({"cpu": "2", "memory": "1Gi", "example.com/gpu": "2"}, Resources(2_000, GIB)),
        ({"cpu": "9", "memory": "1Gi"}, Resources(4_000, GIB)),
        ({}, Resources(4_000, 4 * GIB)),
    ],
)
def test_allocatable_is_what_it_was_before_amplification_and_never_more_than_it_is(
    raw: dict[str, str], expected: Resources
) -> None:
    assert amplification.raw_allocatable(node(cpu="4", memory="4Gi", annotations={RAW: json.dumps(raw)})) == expected


def test_what_there_was_is_noted_as_koordinator_notes_it() -> None:
    text = third_party.origin(node(), Resources(50_000, 120 * GIB))
    assert text == '{"resources":{"kubernetes.io/batch-cpu":"50k","kubernetes.io/batch-memory":"120Gi"}}'
    nothing = third_party.origin(node(annotations={ORIGIN: text}), None)
    assert nothing == '{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}'


@pytest.mark.parametrize(
    ("before", "kept"),
    [('{"resources": {"example.com/gpu": "2"}}', {"example.com/gpu": "2"}), ("{", {}), ('{"resources": 1}', {})],
)
def test_others_notes_stay_where_they_can_be_read(before: str, kept: dict[str, str]) -> None:
    noted = json.loads(third_party.origin(node(annotations={ORIGIN: before}), Resources(1, 1)))["resources"]
    assert noted == {**kept, names.BATCH_CPU: "1", names.BATCH_MEMORY: "1"}


@given(st.integers(0, 2**62), st.floats(allow_nan=False, min_value=0.01, max_value=5))
def test_normalised_cpu_is_never_less_and_at_most_one_unit_beside_the_product(cpu: int, ratio: float) -> None:
    found = amplification.normalized(cpu, ratio)
    assert cpu <= found < 2**63
    if ratio > 1 and cpu < 2**40:
        assert abs(found - cpu * ratio) <= 1 + 1e-9 * found


@given(st.text(max_size=20))
def test_no_text_breaks_the_reading_of_a_ratio(text: str) -> None:
    try:
        ratio = amplification.cpu_normalization_ratio(node(annotations={RATIO: text}))
    except InvalidInput:
        return
    assert ratio is not None
    assert 0 < ratio <= amplification.MAX_RATIO
