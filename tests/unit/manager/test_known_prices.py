"""For which prices nodes are replaced, and which only rank what may grow."""

from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler.cluster_state import cost
from manager.autoscaler.pricing import price_sources
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.list_prices import ListPricing
from manager.autoscaler.pricing.model import (
    GIB,
    FirstOffered,
    GuessedPrice,
    Machine,
    NotOffered,
    PricingModel,
    Unpriced,
    known_node_price,
)
from manager.autoscaler.pricing.plausibility import PriceLimits, cores_of
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import PODS, NodeInfo
from shared.errors import InvalidInput
from shared.quantity import Amounts

TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
SPOT = {"karpenter.sh/capacity-type": "spot"}
TABLE = """{"cloud": "aws", "date": "2026-11-20", "source": "a test", "regions": ["eu-central-1", "eu-central-1b"],
"on_demand": {"m5.large": [0.115, null]}, "spot": {"m5.large": [0.04, 0.05]}}"""


def machine(kind: str = "", cores: float = 2, zone: str = "", labels: dict[str, str] | None = None) -> Machine:
    named = {TYPE: kind} if kind else {}
    return Machine(
        {"cpu": round(cores * 1000), "memory": 8 * GIB}, {**named, **({ZONE: zone} if zone else {}), **(labels or {})}
    )


def spot(kind: str, **more: Any) -> Machine:
    of = machine(kind, **more)
    return Machine(of.capacity, {**of.labels, **SPOT})


class OwnPrice:
    def __init__(self, price: float | None) -> None:
        self.price = price

    def node_price(self, machine: Machine) -> float:
        if self.price is None:
            raise NotOffered("no prices of machines")
        return self.price

    def pod_price(self, requests: Amounts) -> float:
        return 1.0


def written(tmp_path: Path, text: str, name: str = "prices.yaml") -> PricingModel:
    path = tmp_path / name
    path.write_text(text)
    return price_sources.load(path)


@pytest.mark.parametrize(
    "of",
    [
        machine("m5.large"),
        spot("m5.large"),
        machine("c7g.large"),
        machine("Standard_D2s_v5"),
        machine(""),
        machine("rack-7"),
        Machine({"cpu": 2000, "nvidia.com/gpu": 1}, {TYPE: "n1-standard-2"}),
        Machine({"cpu": 2000}, {TYPE: "n1-standard-2", "cloud.google.com/gke-boot-disk": "punched-cards"}),
    ],
)
@pytest.mark.parametrize("model", [GcePricing(), FirstOffered((OwnPrice(None), GcePricing()))])
def test_what_google_does_not_have_is_ranked_by_a_guess_that_replaces_nothing(model: PricingModel, of: Machine) -> None:
    assert model.node_price(of) > 0
    with pytest.raises(GuessedPrice, match="Google's prices do not have"):
        known_node_price(model, of)


@pytest.mark.parametrize("kind", ["n2-standard-2", "e2-medium", "n2-custom-2-8192"])
def test_machines_of_googles_have_known_prices(kind: str) -> None:
    assert known_node_price(GcePricing(), machine(kind)) == GcePricing().node_price(machine(kind))


def test_the_clouds_own_price_is_known_and_comes_before_googles() -> None:
    assert known_node_price(FirstOffered((OwnPrice(0.3), GcePricing())), machine("m5.large")) == 0.3


def test_a_price_of_0_is_none() -> None:
    with pytest.raises(GuessedPrice, match="a price of 0, and no machine is free"):
        known_node_price(OwnPrice(0.0), machine("m5.large"))


def test_a_price_file_guesses_what_it_does_not_list(tmp_path: Path) -> None:
    model = written(tmp_path, "{machine_types: {m5.large: 0.1}, cpu: 0.03, memory_gib: 0.004}")
    assert known_node_price(model, machine("m5.large")) == 0.1
    assert model.node_price(machine("c7g.large")) == pytest.approx(0.092)
    with pytest.raises(GuessedPrice, match=r"does not list machine type c7g\.large, on-demand, and a price"):
        known_node_price(model, machine("c7g.large"))
    with pytest.raises(GuessedPrice, match="a machine without a type"):
        known_node_price(model, machine(""))


def test_a_price_file_of_units_alone_knows_every_machine_of_these_units(tmp_path: Path) -> None:
    model = written(tmp_path, "{cpu: 0.03, memory_gib: 0.004}")
    assert known_node_price(model, machine("rack-7")) == pytest.approx(0.092)
    with pytest.raises(GuessedPrice):
        known_node_price(model, Machine({"cpu": 2000, "nvidia.com/gpu": 1}))
    with pytest.raises(GuessedPrice):
        known_node_price(written(tmp_path, "{cpu: 0.03}"), machine("rack-7"))
    with pytest.raises(GuessedPrice):
        known_node_price(FilePricing(), machine("rack-7"))


def test_a_price_file_tells_spot_from_on_demand_and_zone_from_zone(tmp_path: Path) -> None:
    model = written(
        tmp_path,
        "{machine_types: {m5.large: [{price: 0.115}, {price: 0.04, capacity_type: spot}, "
        "{price: 0.05, capacity_type: spot, zone: z2}], c5.large: 0.09}}",
    )
    assert [known_node_price(model, each) for each in (machine("m5.large", zone="z2"), spot("m5.large"))] == [
        0.115,
        0.04,
    ]
    assert [known_node_price(model, spot("m5.large", zone=zone)) for zone in ("z1", "z2")] == [0.04, 0.05]
    assert model.node_price(spot("c5.large")) == 0.09, "its price on demand ranks it"
    with pytest.raises(GuessedPrice, match=r"machine type c5\.large, spot, zone z1"):
        known_node_price(model, spot("c5.large", zone="z1"))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("{machine_types: {m5.large: 9.6}}", "machine_types.m5.large", "9.6: above 4 for 2 cores: a price is per hour"),
        ("{machine_types: {m5.xlarge: 138}}", "machine_types.m5.xlarge", "138"),
        ("{machine_types: {Standard_D4s_v5: [{price: 140}]}}", "machine_types.Standard_D4s_v5", "140"),
        ("{machine_types: {n2-standard-4: 19.4}}", "machine_types.n2-standard-4", "19.4: above 8 for 4 cores"),
        ("{cpu: 24.2}", "cpu", "24.2: above 2: a price is per hour"),
        ("{memory_gib: 3.2}", "memory_gib", "3.2"),
        ("{gpu: 500}", "gpu", "500"),
        ("{disk_gib: 0.1}", "disk_gib", "0.1"),
        ("{machine_types: {m5.large: [{price: 1}, {price: 2}]}}", r"machine_types.m5.large\[1\]", "on-demand.: twice"),
        ("{machine_types: {m5.large: [{price: 1, capacity_type: cheap}]}}", "capacity_type", "cheap"),
        ("{machine_types: {m5.large: [{price: 1, region: x}]}}", "machine_types", "region"),
    ],
)
def test_a_price_in_another_unit_is_refused_with_its_field_and_value(
    tmp_path: Path, text: str, field: str, value: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"prices.yaml: .*{field}.*{value}"):
        written(tmp_path, text)


def test_a_currency_of_small_units_says_what_a_core_costs_at_most(tmp_path: Path) -> None:
    model = written(tmp_path, "{machine_types: {m5.large: 15, rack-7: 15}, most_per_core: 300}")
    assert known_node_price(model, machine("m5.large")) == 15
    model = written(tmp_path, "{machine_types: {rack-7: 15}}")
    assert model.node_price(machine("rack-7")) == 15, "its name tells no cores"
    with pytest.raises(GuessedPrice, match="rack-7 has a price of 15 in the price file, above 4 for 2 cores"):
        known_node_price(model, machine("rack-7"))


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        ("m5.large", 2),
        ("m5.xlarge", 4),
        ("u7i-12tb.224xlarge", 896),
        ("t3.nano", 2),
        ("m5.metal", None),
        ("Standard_E64-16ds_v4", 64),
        ("Basic_A2", 2),
        ("n2-standard-4", 4),
        ("z3-highmem-88-highlssd", 88),
        ("a3-highgpu-8g", None),
        ("e2-medium", None),
        ("rack-7", None),
        ("", None),
    ],
)
def test_names_of_machine_types_tell_their_cores(name: str, cores: int | None) -> None:
    assert cores_of(name) == cores


def test_a_folder_or_a_file_of_tables_prices_by_type_capacity_type_region_and_zone(tmp_path: Path) -> None:
    for path in ("aws.json", "prices/aws.json"):
        (tmp_path / "prices").mkdir(exist_ok=True)
        written(tmp_path, TABLE, path)
    for model in (price_sources.load(tmp_path / "aws.json"), price_sources.load(tmp_path / "prices")):
        assert isinstance(model, ListPricing)
        assert known_node_price(model, machine("m5.large", zone="eu-central-1a")) == 0.115
        assert known_node_price(model, spot("m5.large", zone="eu-central-1a")) == 0.04
        assert known_node_price(model, spot("m5.large", zone="eu-central-1b")) == 0.05
        lifecycle = machine("m5.large", zone="eu-central-1a", labels={"node.kubernetes.io/lifecycle": "spot"})
        assert model.node_price(lifecycle) == 0.04
        for unknown in (machine("m5.large", zone="us-east-1a"), machine("c7g.large", zone="eu-central-1a")):
            with pytest.raises(Unpriced, match="machine type"):
                known_node_price(model, unknown)


def test_a_price_file_in_json_is_still_a_price_file(tmp_path: Path) -> None:
    assert isinstance(written(tmp_path, '{"machine_types": {"m5.large": 0.1}}', "prices.json"), FilePricing)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no table in this folder"):
        price_sources.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"source"', '"unit": "month", "source"'), "unit: 'month': expected hour"),
        (('"source"', '"currency": "EUR", "source"'), "currency: 'EUR': expected USD"),
        (("0.115", "84"), r"on_demand.m5.large: 84.0: above 4 for 2 cores: a price is per hour"),
        (("0.04,", "4.01,"), r"spot.m5.large: 4.01"),
        (('"spot"', '"cores": {"n2": [24.0, null]}, "spot"'), r"cores.n2: 24.0: above 2"),
        (('"spot"', '"memory_gib": {"n2": [3.2, null]}, "spot"'), r"memory_gib.n2: 3.2: above 0.25"),
    ],
)
def test_a_table_in_another_unit_is_refused_with_its_field_and_value(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"aws.json: {said}"):
        written(tmp_path, TABLE.replace(*change), "aws.json")


def test_googles_prices_of_another_region_do_not_stand_beside_a_table_of_its_own(tmp_path: Path) -> None:
    table = """{"cloud": "gcp", "date": "d", "source": "s", "regions": ["europe-west3"],
    "cores": {"n2": [0.04]}, "memory_gib": {"n2": [0.005]}}"""
    model = written(tmp_path, table, "gcp.json")
    assert known_node_price(model, machine("n2-standard-2", zone="europe-west3-a")) == pytest.approx(0.12)
    assert known_node_price(model, machine("c3-standard-2", zone="us-central1-a")) > 0
    assert model.node_price(machine("c3-standard-2", zone="europe-west3-a")) > 0
    with pytest.raises(GuessedPrice, match="table of europe-west3 lacks machine type c3-standard-2"):
        known_node_price(model, machine("c3-standard-2", zone="europe-west3-a"))


def test_the_karpenter_catalogue_and_the_price_file_have_one_limit() -> None:
    assert PriceLimits().machine_problem(4.1, 2) == "above 4 for 2 cores: a price is per hour"
    assert PriceLimits().machine_problem(4.0, 2) == ""


def test_the_cost_of_a_cluster_has_guesses_in_it_and_says_of_which_nodes() -> None:
    def node(name: str, kind: str) -> NodeInfo:
        amounts = {"cpu": 2000, "memory": 8 * GIB, PODS: 10}
        return NodeInfo(name, {TYPE: kind}, capacity=amounts, allocatable=amounts)

    nodes = [node("a", "n2-standard-2"), node("b", "m5.large")]
    found = cost.cluster_cost(cluster.snapshot_of_nodes(nodes), {}, GcePricing())
    assert found.by_node.keys() == {"a", "b"}
    assert found.known_by_node.keys() == {"a"}
    assert found.unknown.keys() == {"b"}
    assert "m5.large" in found.unknown["b"]
