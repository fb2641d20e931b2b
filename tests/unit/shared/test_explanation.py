"""Explanations read by people and by machines."""

import msgspec
import pytest

from shared import explanation
from shared.explanation import Explanation, ResourceExplanation, ScaleExplanation, Term


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1500, "milli", "1500m"),
        (2000, "milli", "2"),
        (3 << 30, "bytes", "3.00 GiB"),
        (5 << 20, "bytes", "5 MiB"),
        (60, "percent", "60 %"),
        (6250, "basisPoints", "62.5 %"),
        (1, "nodes", "1 node"),
        (3, "pods", "3 pods"),
        (90, "seconds", "1m30s"),
        (1234, "thousandths", "1.234"),
    ],
)
def test_an_amount_carries_its_unit(value: int, unit: str, text: str) -> None:
    assert explanation.amount(value, unit) == text


def test_the_terms_make_a_sentence() -> None:
    terms = (Term("reclaimable", 1500, "milli", "NodeMetric"), Term("cap", 2000, "milli", "strategy"))
    assert explanation.sentence(terms) == "reclaimable 1500m, cap 2"


def test_an_explanation_survives_the_wire() -> None:
    resource = ResourceExplanation((Term("cap", 1, "bytes", "Node", "2026-01-01T00:00:00Z"),), "cap", 1)
    sent = Explanation(resource, resource, "because")
    assert msgspec.json.decode(msgspec.json.encode(sent), type=Explanation) == sent


def test_two_changes_of_one_group_make_one_with_all_terms_and_the_later_bound() -> None:
    first = ScaleExplanation("3 pending pods", (Term("triggered", 3, "pods", "pending pods"),), "triggered", 2)
    later = ScaleExplanation("1 buffer chunk", (Term("triggered", 1, "pods", "buffer chunks"),), "allowed", 1)
    both = first.joined(later)
    assert (str(both), both.bound, both.result) == ("3 pending pods, 1 buffer chunk", "allowed", 3)
    assert both.terms == first.terms + later.terms
