"""The Mid formulas: the seed's numbers, and what must hold of every formula whatever the cluster says."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import mid
from manager.nodeside.noderesource.buffer import Learned, Share
from manager.nodeside.noderesource.prod_first import Lesson
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import NOTHING, NodeRequests
from shared.api.colocation import ColocationStrategy, MidFormula
from shared.explanation import Explanation
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, node_report
from tests.unit.manager.sums import assert_sums_are_right

ALLOCATABLE = Resources(32_000, 64 * GIB)


def situation(
    *,
    reclaimable: Resources | None,
    allocatable: Resources = ALLOCATABLE,
    prod: Resources = NOTHING,
    usage: Resources | None = None,
    peak: tuple[int | None, int | None] = (None, None),
    lately: Resources = NOTHING,
    system_usage: tuple[int | None, int | None] = NOTHING,
    model: str = "",
) -> NodeSituation:
    return NodeSituation(
        node="n1",
        capacity=allocatable,
        allocatable=allocatable,
        reserved=Resources(),
        requested=NodeRequests(prod, prod),
        report=node_report(
            update_time=0,
            updated="2024-01-01T00:00:00Z",
            usage=usage,
            peak=peak,
            reclaimable=reclaimable,
            system_usage=system_usage,
            model=model,
        ),
        prod_requested_lately=lately,
    )


def results(explained: Explanation) -> tuple[tuple[int, str], tuple[int, str]]:
    return (explained.cpu.result, explained.cpu.bound), (explained.memory.result, explained.memory.bound)


@pytest.mark.parametrize(
    ("strategy", "reclaimable", "expected"),
    [
        ({}, Resources(9_000, 8 * GIB), ((9_000, "reclaimable"), (8 * GIB, "reclaimable"))),
        (
            {"mid_cpu_threshold_percent": 25, "mid_memory_threshold_percent": 10},
            Resources(9_000, 8 * GIB),
            ((8_000, "cap"), (64 * GIB // 10, "cap")),
        ),
        ({}, None, ((0, "reclaimable"), (0, "reclaimable"))),
        ({}, Resources(-5, -5), ((0, "reclaimable"), (0, "reclaimable"))),
        (
            {"mid_formula": MidFormula.SEED_MIXED},
            Resources(1000, GIB),
            ((1000 + 22_000, "reclaimable + unallocated"), (GIB + 54 * GIB, "reclaimable + unallocated")),
        ),
        (
            {"mid_formula": MidFormula.SEED_MIXED, "mid_cpu_threshold_percent": 20},
            Resources(9_000, 10 * GIB),
            ((6400 + 22_000, "cap + unallocated"), (64 * GIB, "reclaimable + unallocated")),
        ),
        (
            {"mid_buffer": 25},
            Resources(1000, GIB),
            ((750, "reclaimable - buffer"), (GIB * 3 // 4, "reclaimable - buffer")),
        ),
    ],
)
def test_the_seed_formulas(
    strategy: dict[str, Any], reclaimable: Resources | None, expected: tuple[tuple[int, str], tuple[int, str]]
) -> None:
    seen = situation(reclaimable=reclaimable, prod=Resources(10_000, 10 * GIB))
    assert results(mid.calculate(ColocationStrategy(**strategy), seen)) == expected


def test_a_static_share_beyond_all_numbers_is_capped_like_any_other() -> None:
    absurd = ColocationStrategy(
        mid_formula=MidFormula.UPSTREAM,
        mid_reclaim_mode=mid.STATIC,
        mid_cpu_threshold_percent=50,
        mid_static_cpu_reserved_percent=10**306,
        mid_static_memory_reserved_percent=10**306,
    )
    explained = mid.calculate(absurd, situation(reclaimable=None))
    assert results(explained) == ((16_000, "cap"), (64 * GIB, "cap"))


def test_every_term_names_its_source_and_reported_ones_their_time() -> None:
    seen = situation(reclaimable=Resources(1, 1), peak=Resources(3, 1), prod=Resources(4, 2))
    explained = mid.calculate(ColocationStrategy(), seen)
    assert [(term.name, term.value, term.unit) for term in explained.cpu.terms] == [
        ("prod_requested", 4, "milli"),
        ("prod_peak", 3, "milli"),
        ("reclaimable", 1, "milli"),
        ("allocatable", 32_000, "milli"),
        ("threshold", 100, "percent"),
        ("cap", 32_000, "milli"),
    ]
    assert all(term.source for term in (*explained.cpu.terms, *explained.memory.terms))
    timed = {term.name for term in explained.cpu.terms if term.time == "2024-01-01T00:00:00Z"}
    assert timed == {"prod_peak", "reclaimable"}
    assert mid.reason(explained) == (
        "cpu 1m by reclaimable (requested 4m, peak 3m), memory 0 MiB by reclaimable (requested 0 MiB, peak 0 MiB)"
    )


AMOUNTS = st.builds(Resources, st.integers(0, 10**6), st.integers(0, 1 << 44))
SIGNED = st.builds(Resources, st.integers(-(10**6), 10**6), st.integers(-(1 << 44), 1 << 44))
STRATEGIES = st.builds(
    ColocationStrategy,
    mid_formula=st.sampled_from(list(MidFormula)),
    mid_reclaim_mode=st.sampled_from([None, "static", "dynamic"]),
    mid_cpu_threshold_percent=st.integers(0, 100),
    mid_memory_threshold_percent=st.integers(0, 100),
    mid_unallocated_percent=st.none() | st.integers(0, 100),
    mid_static_cpu_reserved_percent=st.integers(0, 300),
    mid_static_memory_reserved_percent=st.integers(0, 300),
    mid_buffer=st.sampled_from(["auto", "off"]) | st.integers(0, 100),
)
SITUATIONS = st.builds(
    situation,
    reclaimable=st.none() | SIGNED,
    allocatable=AMOUNTS,
    prod=AMOUNTS,
    usage=st.none() | AMOUNTS,
    peak=st.tuples(*[st.none() | each for each in (st.integers(0, 10**7), st.integers(0, 1 << 50))]),
    lately=AMOUNTS,
)


@given(STRATEGIES, SITUATIONS)
def test_mid_is_never_negative_and_always_explained(strategy: ColocationStrategy, seen: NodeSituation) -> None:
    explained = mid.calculate(strategy, seen)
    for each in (explained.cpu, explained.memory):
        assert each.result >= 0
        assert each.bound
        assert set(each.bound.replace(" - ", " + ").split(" + ")) <= {term.name for term in each.terms}


@given(STRATEGIES, SITUATIONS)
def test_mid_stays_below_the_cap_and_what_can_be_reclaimed(strategy: ColocationStrategy, seen: NodeSituation) -> None:
    explained = mid.calculate(strategy, seen)
    reported = seen.report.reclaimable if seen.report else None
    for each, reclaimable in zip((explained.cpu, explained.memory), reported or (0, 0), strict=True):
        value = {term.name: term.value for term in each.terms}
        room = value["unallocated"] if strategy.formula is MidFormula.SEED_MIXED else 0
        assert each.result <= value["cap"] + room
        if strategy.formula is not MidFormula.UPSTREAM:
            assert each.result <= max(0, reclaimable) + room
            assert each.result <= value["allocatable"]


@given(STRATEGIES, SITUATIONS)
def test_a_larger_buffer_never_offers_more(strategy: ColocationStrategy, seen: NodeSituation) -> None:
    offers = [mid.calculate(_with_buffer(strategy, percent), seen).cpu.result for percent in (0, 10, 50, 100)]
    assert offers == sorted(offers, reverse=True)
    assert offers[-1] == 0


@given(SITUATIONS, st.integers(0, 200), st.integers(0, 200))
def test_a_learned_buffer_holds_back_its_share_and_says_where_it_comes_from(
    seen: NodeSituation, cpu: int, memory: int
) -> None:
    raw = mid.calculate(ColocationStrategy(), seen)
    explained = mid.calculate(ColocationStrategy(), seen, Learned(Share(cpu, 40), Share(memory, 40)))
    for each, before, permille in zip(
        (explained.cpu, explained.memory), (raw.cpu, raw.memory), (cpu, memory), strict=True
    ):
        assert each.result == before.result * (1000 - permille) // 1000
        assert (each.terms[-1].name, each.terms[-1].value) == (mid.BUFFER, before.result - each.result)
        assert "the last 40 steps" in each.terms[-1].source


@given(STRATEGIES, SITUATIONS, st.integers(1, 500), st.integers(0, 200))
def test_a_lesson_withholds_its_share_before_the_buffer_does_and_says_why(
    strategy: ColocationStrategy, seen: NodeSituation, permille: int, buffer: int
) -> None:
    learned, lessons = Learned(Share(buffer, 40), Share(buffer, 40)), {"cpu": Lesson(permille, 0.4)}
    before = mid.calculate(msgspec.structs.replace(strategy, mid_buffer="off"), seen)
    found = mid.calculate(msgspec.structs.replace(strategy, mid_buffer="auto"), seen, learned, lessons)
    without = mid.calculate(msgspec.structs.replace(strategy, mid_buffer="auto"), seen, learned)
    taught = before.cpu.result * (1000 - permille) // 1000
    assert found.cpu.result == taught * (1000 - buffer) // 1000
    assert found.memory == without.memory
    (term,) = (each for each in found.cpu.terms if each.name == mid.LESSON)
    assert term.value == before.cpu.result - taught
    assert "since Prod was slowed for 0.4 % of a day" in term.source


def test_the_sentence_has_what_is_withheld() -> None:
    seen = situation(reclaimable=Resources(1000, GIB), peak=(3000, GIB), prod=Resources(4000, 2 * GIB))
    found = mid.calculate(ColocationStrategy(mid_buffer="off"), seen, None, {"cpu": Lesson(250, 0.45)})
    assert mid.reason(found) == (
        "cpu 750m by reclaimable - prod_slowed_lately (requested 4, peak 3, 250m withheld since Prod was slowed), "
        "memory 1.00 GiB by reclaimable (requested 2.00 GiB, peak 1.00 GiB)"
    )


def test_a_buffer_that_is_switched_off_learns_in_vain() -> None:
    amount, learned = Resources(1000, GIB), Learned(Share(200, 40), Share(200, 40))
    seen = situation(reclaimable=amount, prod=amount)
    assert results(mid.calculate(ColocationStrategy(mid_buffer="off"), seen, learned)) == (
        (1000, "reclaimable"),
        (GIB, "reclaimable"),
    )


def _with_buffer(strategy: ColocationStrategy, percent: int) -> ColocationStrategy:
    return msgspec.structs.replace(strategy, mid_buffer=percent)


@pytest.mark.parametrize("formula", MidFormula)
def test_a_report_that_contradicts_itself_lends_nothing_where_nothing_is_requested(formula: MidFormula) -> None:
    absurd = Resources(1_000_000_000, 1 << 50)
    seen = situation(reclaimable=absurd, usage=NOTHING)
    strategy = ColocationStrategy(mid_formula=formula)
    explained = mid.calculate(strategy, seen)
    unallocated = ALLOCATABLE if formula is MidFormula.SEED_MIXED else NOTHING
    assert (explained.cpu.result, explained.memory.result) == unallocated
    assert all(each.bound.startswith(mid.LIMIT) for each in (explained.cpu, explained.memory))
    assert {term.name: term.value for term in explained.cpu.terms}[mid.LIMIT] == 0


@pytest.mark.parametrize(
    ("formula", "expected"),
    [(MidFormula.SEED, 2000), (MidFormula.SEED_MIXED, 2000 + 24_000), (MidFormula.UPSTREAM, 5000)],
)
def test_the_seeds_formulas_lend_no_more_than_requests_less_the_reported_peak(
    formula: MidFormula, expected: int
) -> None:
    requested = Resources(8000, 8 * GIB)
    seen = situation(
        reclaimable=Resources(5000, GIB), prod=requested, peak=Resources(6000, 7 * GIB), usage=Resources(1000, GIB)
    )
    explained = mid.calculate(ColocationStrategy(mid_formula=formula), seen)
    assert explained.cpu.result == expected
    assert (mid.LIMIT in explained.cpu.bound) is (formula is not MidFormula.UPSTREAM)
    assert mid.LIMIT not in explained.memory.bound


def test_requests_that_are_gone_since_the_report_still_bear_it_out_where_nothing_else_is_lent() -> None:
    """Lent as unallocated too, they would be lent twice."""
    seen = situation(
        reclaimable=Resources(6000, GIB),
        prod=Resources(4000, GIB),
        lately=Resources(8000, GIB),
        peak=Resources(2000, 0),
    )
    assert mid.calculate(ColocationStrategy(), seen).cpu.result == 6000
    mixed = mid.calculate(ColocationStrategy(mid_formula=MidFormula.SEED_MIXED), seen)
    assert mixed.cpu.result == 2000 + 28_000


@given(STRATEGIES, SITUATIONS)
def test_of_what_pods_requested_never_more_is_reclaimed_than_the_peak_leaves(
    strategy: ColocationStrategy, seen: NodeSituation
) -> None:
    explained = mid.calculate(strategy, seen)
    for where, each in enumerate((explained.cpu, explained.memory)):
        value = {term.name: term.value for term in each.terms}
        if mid.STATIC_RESERVED in value:
            continue
        requested, limit = seen.most_requested[where], seen.most_requested[where]
        peak = seen.report.peak[where] if seen.report else None
        if strategy.formula is not MidFormula.UPSTREAM and peak is not None:
            limit = max(0, requested - peak)
        room = value["unallocated"] if strategy.formula is not MidFormula.SEED else 0
        assert each.result <= limit + room
        assert mid.LIMIT not in value or value[mid.RECLAIMABLE] > value[mid.LIMIT]


@given(STRATEGIES, SITUATIONS)
def test_what_nobody_measured_never_raises_mid(strategy: ColocationStrategy, seen: NodeSituation) -> None:
    assert seen.report is not None
    unmeasured = msgspec.structs.replace(seen.report, usage=None, system_usage=(None, None))
    known, unknown = (
        mid.calculate(strategy, msgspec.structs.replace(seen, report=report)) for report in (seen.report, unmeasured)
    )
    assert unknown.cpu.result <= known.cpu.result
    assert unknown.memory.result <= known.memory.result


@given(STRATEGIES, SITUATIONS, st.integers(0, 1000), st.booleans())
def test_every_sum_of_koordinators_formula_is_right_as_it_is_shown(
    strategy: ColocationStrategy, seen: NodeSituation, permille: int, is_measured: bool
) -> None:
    strategy = msgspec.structs.replace(strategy, mid_formula=MidFormula.UPSTREAM)
    if not is_measured and seen.report is not None:
        seen = msgspec.structs.replace(seen, report=msgspec.structs.replace(seen.report, usage=None))
    learned, lessons = Learned(Share(permille, 40), Share(permille, 40)), {"cpu": Lesson(permille // 2, 0.4)}
    for taught in ({}, lessons):
        assert_sums_are_right(mid.reason(mid.calculate(strategy, seen, learned, taught)))


@pytest.mark.parametrize(
    ("system", "lent"),
    [((1500, 0), (8500, 100)), ((None, 0), (0, 100)), ((1500, None), (8500, 0)), ((None, None), (0, 0))],
)
def test_nothing_unallocated_of_a_resource_is_lent_while_the_use_of_the_system_is_unknown(
    system: tuple[int | None, int | None], lent: tuple[int, int]
) -> None:
    strategy = ColocationStrategy(mid_formula=MidFormula.UPSTREAM, mid_unallocated_percent=100, mid_buffer="off")
    found = situation(reclaimable=NOTHING, allocatable=Resources(10_000, 100), usage=NOTHING, system_usage=system)
    explained = mid.calculate(strategy, found)
    assert (explained.cpu.result, explained.memory.result) == lent
