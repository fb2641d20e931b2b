"""The cost-based rank, its presets, and the prices under it."""

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.expander import chain, priority, ranking
from manager.autoscaler.expander.option import Option, PodClass, has_gpu
from manager.autoscaler.expander.ranking import CLUSTER_AUTOSCALER, LEAST_COST, SEED, Preset
from manager.autoscaler.pricing import price_file
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import NVIDIA_GPU, SEED_PRICES, Machine, UnitPrices
from manager.autoscaler.pricing.price_file import FilePricing
from shared.errors import InvalidInput

PODS = (PodClass({"cpu": 100}, 1),)
TYPE = "node.kubernetes.io/instance-type"


def option(group: str, cores: int, *, gpus: int = 0, exists: bool = True, nodes: int = 1) -> Option:
    machine = Machine({"cpu": cores * 1000, NVIDIA_GPU: gpus})
    return Option(group, nodes, machine, PODS, exists=exists, has_gpu=gpus > 0)


def ranks(preset: Preset, *options: Option, preferred_cores: int = 8) -> dict[str, float]:
    found = ranking.rank_options(options, FilePricing(), preset, preferred_cores * 1000)
    return {each.option.group: each.rank.rank for each in found if each.rank and each.rank.rank is not None}


@pytest.mark.parametrize(
    ("nodes", "cores"), [(1, 1), (2, 1), (3, 2), (20, 4), (21, 8), (80, 8), (81, 16), (300, 16), (301, 32), (10**6, 32)]
)
def test_at_a_bound_two_sizes_share_the_smaller_machine_wins(nodes: int, cores: int) -> None:
    assert ranking.preferred_cpu_milli(SEED, nodes) == cores * 1000


def test_x_is_the_price_of_half_a_core_and_under_the_preset_of_memory_too() -> None:
    assert FilePricing().pod_price(SEED.stabilization) == pytest.approx(0.016587)
    assert GcePricing().pod_price(CLUSTER_AUTOSCALER.stabilization) == pytest.approx(0.0187579, abs=1e-7)


def test_a_gpu_counts_through_its_price_alone_unless_the_preset_overrides_it() -> None:
    plain, gpu = option("plain", 2), option("gpu", 2, gpus=1)
    seed = ranks(SEED, plain, gpu)
    assert seed["gpu"] / seed["plain"] == pytest.approx((0.766348 + 0.016587) / (0.066348 + 0.016587))
    assert ranks(CLUSTER_AUTOSCALER, gpu)["gpu"] > 1000


def test_a_group_yet_to_be_created_ranks_twice_as_high_under_the_preset_alone() -> None:
    there, new = option("there", 8), option("new", 8, exists=False)
    assert ranks(SEED, there, new)["new"] == ranks(SEED, there, new)["there"]
    shipped = ranks(CLUSTER_AUTOSCALER, there, new)
    assert shipped["new"] == 2 * shipped["there"]


def test_under_least_cost_no_size_is_preferred_in_a_cluster_of_any_size() -> None:
    sizes = [ranking.preferred_cpu_milli(LEAST_COST, nodes) for nodes in (0, 1, 300, 10**6)]
    assert sizes == [None] * 4
    options = [option("small", 2, nodes=8), option("large", 16)]
    found = [each.rank for each in ranking.rank_options(options, FilePricing(), LEAST_COST, None)]
    assert [each and (each.unfitness, each.suppressed_unfitness) for each in found] == [(1.0, 1.0)] * 2
    assert len({each and each.rank for each in found}) == 1


def test_a_machine_without_cpu_has_no_rank_and_says_why() -> None:
    (found,) = ranking.rank_options([option("none", 0)], FilePricing(), SEED, 1000)
    assert found.rank is None
    assert "no cpu" in found.problem


def test_pods_that_cost_nothing_are_worth_no_node_and_nothing_divides_by_zero() -> None:
    assert ranking.stabilized_price(1.0, 0.0, 0.0) == math.inf


def test_where_pods_cost_nothing_the_cheapest_nodes_win() -> None:
    units = UnitPrices(cpu=0.0, memory_gib=1.0, gpu=0.0, disk_gib=0.0)
    prices = FilePricing({"cheap": 0.01, "dear": 9.0}, units)
    worth = Option("worth", 1, Machine({"cpu": 4000}, {TYPE: "dear"}), (PodClass({"memory": 1 << 20}, 1),))
    cheap, dear = (Option(each, 1, Machine({"cpu": 4000}, {TYPE: each}), PODS) for each in ("cheap", "dear"))
    for options, best in (([dear, cheap], [cheap]), ([dear, dear], [dear, dear]), ([cheap, worth], [worth])):
        assert ranking.best_options(ranking.rank_options(options, prices, SEED, 4000)) == best


@given(st.floats(1, 64), st.integers(1, 10_000))
def test_suppression_leads_from_the_unfitness_towards_one(unfit: float, nodes: int) -> None:
    suppressed = ranking.suppress(unfit, nodes)
    assert 1 <= suppressed <= unfit
    assert ranking.suppress(unfit, 1) == pytest.approx(unfit)
    assert ranking.suppress(unfit, nodes + 1) <= suppressed


@given(st.permutations([option(f"g{cores}", cores) for cores in (1, 2, 4, 8, 16, 32)]))
def test_the_best_option_does_not_depend_on_the_order_of_options(options: list[Option]) -> None:
    found = ranking.rank_options(options, FilePricing(), SEED, 8000)
    lowest = min(each.rank.height for each in found if each.rank)
    assert [each.rank.height for each in found if each.rank and each.option in ranking.best_options(found)] == [lowest]


def test_a_label_makes_a_gpu_node_before_the_driver_is_ready() -> None:
    assert has_gpu({"accelerator": ""}, {}, "accelerator")
    assert has_gpu({}, {"amd.com/gpu": 1}, None)
    assert not has_gpu({}, {"amd.com/gpu": 0}, "accelerator")


def test_a_price_file_prices_listed_machines_by_type_and_others_by_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("machine_types: {big: 2.5}\ncpu: 0.1\nmemory_gib: 0\n")
    model = price_file.load(path)
    capacity = {"cpu": 4000, "memory": 1 << 34}
    assert model.node_price(Machine(capacity, {"node.kubernetes.io/instance-type": "big"})) == 2.5
    assert model.node_price(Machine(capacity)) == pytest.approx(0.4)
    assert model.pod_price({NVIDIA_GPU: 2}) == pytest.approx(2 * SEED_PRICES.gpu)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("cpu: -1", "cpu"),
        ("machine_types: {a: cheap}", "machine_types"),
        ("currency: EUR", "(document)"),
        ("[", "(document)"),
        ("- 1", "(document)"),
    ],
)
def test_a_bad_price_file_is_refused_by_name_and_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        price_file.load(path)
    assert str(path) in str(refused.value)
    assert field in str(refused.value)


@pytest.mark.parametrize("text", ["", "cheapest", "price,price", "random,price", "price, least-waste"])
def test_a_chain_that_means_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="expander"):
        chain.parse(text, source="flags")


def test_a_chain_stops_as_soon_as_one_option_is_left() -> None:
    filters: dict[str, chain.Filter[str]] = {"price": lambda options: options[:1], "priority": lambda options: []}
    assert chain.filter_in_order(["a", "b"], filters, chain.parse("price,priority,random", source="flags")) == [
        ("price", ["a"])
    ]


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("a(?=b)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"pool\Z", r"invalid escape sequence: \Z"),
        (r"pool-\C", r"invalid escape sequence: \C"),
        ("a**", "bad repetition operator: **"),
        ("pool-[", "missing ]"),
        ("(pool", "missing )"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        (r"(\pL{10}){100}", "too large"),
    ],
)
def test_a_pattern_that_is_none_of_gos_is_refused_with_key_and_pattern(pattern: str, named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        priority.parse(yaml.safe_dump({10: ["good", pattern]}), source="ConfigMap")
    assert (refused.value.field, refused.value.value) == (priority.KEY, pattern)
    assert named in str(refused.value)
    assert "priority 10" in str(refused.value)


@pytest.mark.parametrize("pattern", [".?" * 24 + "!", ".*.*.*.*!", "(a+)+!", "(a|a)*!", "(.*a){30}!", "(a?){900}!"])
def test_a_pattern_that_backtracks_elsewhere_is_searched_for_at_once(pattern: str) -> None:
    found = priority.parse(yaml.safe_dump({10: [pattern]}), source="ConfigMap")
    assert (found.priority("a" * 252), found.priority("a" * 252 + "!")) == (None, 10)


def test_patterns_that_take_too_much_memory_together_are_refused() -> None:
    large, small = "a{1000}", "pool-[0-9]+"
    many = {key: [small] for key in range(500)}
    assert priority.parse(yaml.safe_dump(many), source="ConfigMap").priority("pool-7") == 499
    with pytest.raises(InvalidInput, match="too large together"):
        priority.parse(yaml.safe_dump({key: [large] for key in range(500)}), source="ConfigMap")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("^pool-[0-9]{1,2}-.*-(?:spot|gpu)$", True),
        ("(pool|node)?-7", True),
        (r"[]+*]|\(x\)+|(?i:POOL)", True),
        ("(ab)+", False),
        (r"(\++|[*+]{2})$", False),
        ("p{x", False),
        ("[[:digit:]]-a", True),
        (r"pool-\pN-\z", False),
        (r"pool-\pN-", True),
        (r"\Qpool-7\E", True),
        (r"\Q\C\E|\\C", False),
        ("(?P<number>7)|(?<name>8)", True),
    ],
)
def test_patterns_are_searched_for_in_ids(pattern: str, matches: bool) -> None:
    found = priority.parse(yaml.safe_dump({10: [pattern]}), source="ConfigMap")
    assert (found.priority("pool-7-a-spot") is not None) is matches


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "high: [a]", "10: a", "10: ['(']", "10: [1]", "{"),
        *("!!bool maybe", "!!timestamp soon", "[" * 1000, "10: ['a{9999}']"),
    ],
)
def test_priorities_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="priorities"):
        priority.parse(text, source="ConfigMap")
