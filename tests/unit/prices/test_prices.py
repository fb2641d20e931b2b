"""List prices by region, refreshed from what clouds publish, with discounts and commitments."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import cli
from deploy.prices import book
from deploy.prices.book import Agreements, Commitment, Discount, PriceBook
from manager.autoscaler.pricing import gce
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.list_prices import ListPricing, UnknownMachine
from manager.autoscaler.pricing.model import GIB, GuessedPrice, Machine
from shared.errors import HeadroomError, InvalidInput
from tests.unit.prices.cloud_prices import (
    CloudPrices,
    as_json,
    aws_list,
    aws_offer,
    azure_item,
    google_sku,
    write_table,
)

TYPE, REGION = "node.kubernetes.io/instance-type", "topology.kubernetes.io/region"


@pytest.fixture
def server() -> Iterator[CloudPrices]:
    found = CloudPrices()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With prices of Amazon's that were fetched on another day."""
    folder = tmp_path / "prices"
    monkeypatch.setenv(book.FOLDER, str(folder))
    write_table(folder)
    return folder


def machine(kind: str, region: str = "us-east-1", **labels: str) -> Machine:
    """Of four cores and 16 GiB."""
    return Machine({"cpu": 4000, "memory": 16 * GIB}, {TYPE: kind, REGION: region, **labels})


def refresh(*arguments: str) -> None:
    assert cli.app(["prices", "refresh", *arguments], standalone_mode=False) in (0, None)


def test_machines_cost_what_the_tables_say() -> None:
    prices = book.open_book()
    assert prices.node_price(machine("m5.large")) == 0.096
    google = machine("n2-standard-4", "us-central1")
    assert prices.node_price(google) == gce.GcePricing().node_price(google)
    assert prices.source([machine("m5.large"), google]) == "list prices, aws of 2026-07-20, gcp of us-central1"


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            machine("m5.large", "eu-west-1"),
            "region eu-west-1; `headroom prices refresh aws --region eu-west-1`",
        ),
        (machine("m5.large", **{"karpenter.sh/capacity-type": "spot"}), "m5.large, spot"),
        (machine("m99.large"), "m99.large"),
        (machine("m5.large", **{"kubernetes.io/os": "windows"}), "Windows"),
        (machine("rack-7"), "rack-7"),
        (Machine({"cpu": 4000}), "no machine type"),
    ],
)
def test_what_no_table_knows_has_a_price_by_its_size_which_is_no_known_one(of: Machine, said: str) -> None:
    known = book.open_book()
    assert known.node_price(of) == pytest.approx(GcePricing().node_price(of))
    assert known.is_estimate(of)
    assert known.source([of]) == "list prices, estimated by size"
    with pytest.raises(GuessedPrice, match=said):
        known.known_node_price(of)
    with pytest.raises(UnknownMachine, match=said):
        ListPricing(book.read_refreshed()).node_price(of)


@pytest.mark.parametrize("of", [machine("m5.large"), machine("n2-standard-4", "us-central1")])
def test_a_price_in_a_table_is_no_estimate(of: Machine) -> None:
    assert not book.open_book().is_estimate(of)


def test_another_regions_prices_are_taken_when_told() -> None:
    assert book.open_book(region="us-east-1").node_price(machine("m5.large", "eu-west-1")) == 0.096


def test_amazons_list_is_read_line_by_line_with_the_spot_advisors_savings(server: CloudPrices) -> None:
    offers = (
        aws_offer("m5.large", "0.1070000000"),
        aws_offer("m5.large", "0.2", Tenancy="Dedicated"),
        aws_offer("m5.large", "0.3", **{"Operating System": "Windows"}),
        aws_offer("m5.large", "0.05", TermType="Reserved"),
        aws_offer("m5.large", "0", CapacityStatus="AllocatedCapacityReservation"),
        aws_offer("m5.large", "0.4", **{"Pre Installed S/W": "SQL Std"}),
        aws_offer("", "0.01", Unit="GB-Mo"),
    )
    server.answers["/offers/v1.0/aws/AmazonEC2/current/eu-west-1/index.csv"] = aws_list(*offers).encode()
    advice = {"eu-west-1": {"Linux": {"m5.large": {"s": 60, "r": 1}, "x.y": {"s": 1, "r": 0}}}}
    server.answers["/spot-advisor-data.json"] = as_json({"spot_advisor": advice})
    refresh("aws", "--region", "eu-west-1", "--url", server.url)
    prices = book.open_book()
    assert prices.node_price(machine("m5.large", "eu-west-1")) == 0.107
    spot = machine("m5.large", "eu-west-1", **{"eks.amazonaws.com/capacityType": "SPOT"})
    assert prices.node_price(spot) == pytest.approx(0.107 * 0.4)
    assert prices.node_price(machine("m5.large")) == 0.096, "regions that were not refreshed stay as they are"


def test_azures_pages_are_followed_to_the_last(server: CloudPrices) -> None:
    kind, path = "Standard_D4s_v5", "/api/retail/prices"
    first = [
        azure_item(kind, 0.23),
        azure_item(kind, 0.5, productName="Virtual Machines Dsv5 Series Windows"),
        azure_item(kind, 0.01, f"{kind} Low Priority"),
        azure_item(kind, 900.0, unitOfMeasure="1 Year", type="Reservation"),
    ]
    link = f"https://prices.azure.com{path}?$filter=x&$skip=1"  # asked of the server that was named
    server.answers[path] = [
        as_json({"Items": first, "NextPageLink": link, "Count": 4}),
        as_json({"Items": [azure_item(kind, 0.046, f"{kind} Spot")], "NextPageLink": None, "Count": 1}),
    ]
    refresh("azure", "--region", "westeurope", "--url", server.url)
    assert "armRegionName+eq+%27westeurope%27" in server.asked[0]
    prices = book.open_book()
    assert prices.node_price(machine(kind, "westeurope")) == 0.23
    assert prices.node_price(machine(kind, "westeurope", **{"kubernetes.azure.com/scalesetpriority": "spot"})) == 0.046


def test_googles_catalog_gives_cores_and_memory_by_family(server: CloudPrices, tmp_path: Path) -> None:
    path = "/v1/services/6F81-5844-456A/skus"
    first = [
        google_sku("N2 Instance Core running in Frankfurt", 40_000_000),
        google_sku("N2 Instance Ram running in Frankfurt", 5_000_000),
        google_sku("N2 Custom Instance Core running in Frankfurt", 99_000_000),
        google_sku("N2 Instance Core running in Iowa", 31_000_000, region="us-central1"),
        google_sku("Commitment v1: N2 Cpu in Frankfurt for 1 Year", 1_000_000, "Commit1Yr"),
    ]
    second = [
        google_sku("Spot Preemptible N2 Instance Core running in Frankfurt", 10_000_000, "Preemptible"),
        google_sku("Spot Preemptible N2 Instance Ram running in Frankfurt", 1_000_000, "Preemptible"),
    ]
    server.answers[path] = [as_json({"skus": first, "nextPageToken": "1"}), as_json({"skus": second})]
    key = tmp_path / "key"
    key.write_text("secret\n")
    refresh("gcp", "--region", "europe-west3", "--url", server.url, "--google-key-file", str(key))
    prices = book.open_book()
    assert prices.node_price(machine("n2-standard-4", "europe-west3")) == pytest.approx(4 * 0.04 + 16 * 0.005)
    spot = machine("n2-standard-4", "europe-west3", **{"cloud.google.com/gke-spot": "true"})
    assert prices.node_price(spot) == pytest.approx(4 * 0.01 + 16 * 0.001)


@pytest.mark.parametrize(
    ("cloud", "path", "content", "said"),
    [
        ("aws", "/offers/v1.0/aws/AmazonEC2/current/x/index.csv", b"<html>\n" * 9, "not a price list"),
        ("azure", "/api/retail/prices", b"<html>", "not what Azure"),
        ("azure", "/api/retail/prices", b'{"Items": []}', "no prices of machines"),
        ("azure", "/elsewhere", b"", "404"),
    ],
)
def test_an_answer_that_is_none_is_refused_and_nothing_is_kept(
    server: CloudPrices, own_folder: Path, cloud: str, path: str, content: bytes, said: str
) -> None:
    server.answers[path] = content
    with pytest.raises(HeadroomError, match=said):
        refresh(cloud, "--region", "x", "--url", server.url)
    assert [path.name for path in own_folder.iterdir()] == ["aws-us-east-1.json"]


def test_a_key_for_google_is_asked_for_and_never_told(server: CloudPrices, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--google-key-file"):
        refresh("gcp", "--region", "x", "--url", server.url)
    key = tmp_path / "key"
    key.write_text("secret")
    with pytest.raises(HeadroomError, match="404") as refused:
        refresh("gcp", "--region", "x", "--url", server.url, "--google-key-file", str(key))
    assert "secret" not in str(refused.value)


def test_a_kept_table_that_is_broken_is_named(own_folder: Path) -> None:
    path = own_folder / "aws-x.json"
    path.write_text(
        '{"cloud": "aws", "date": "d", "source": "s", "regions": ["x", "y"], "on_demand": {"m5.large": [1]}}'
    )
    with pytest.raises(InvalidInput, match=r"aws-x.json: m5.large: \[1.0\]: expected 2 prices"):
        book.open_book()


def test_the_largest_discount_counts_in_the_files_currency(tmp_path: Path) -> None:
    path = tmp_path / "agreed.yaml"
    path.write_text("""
currency: EUR
rate: 0.5
discounts:
- {percent: 10}
- {percent: 20, machine_types: ["m5.*"]}
- {percent: 50, capacity: spot}
""")
    prices = book.open_book(discounts=str(path))
    assert prices.currency == "EUR"
    assert prices.node_price(machine("m5.large")) == pytest.approx(0.096 * 0.5 * 0.8)
    assert prices.node_price(machine("c5.large")) == pytest.approx(0.085 * 0.5 * 0.9)


def test_a_commitment_covers_what_it_names_and_is_paid_in_any_case() -> None:
    prices = PriceBook(ListPricing(book.read_refreshed()), Agreements(commitments=(Commitment(0.15, 25.0, ("m5.*",)),)))
    m5, c5 = ((machine(kind), prices.node_price(machine(kind))) for kind in ("m5.large", "c5.large"))
    assert prices.bill([m5, m5, m5]) == pytest.approx(0.15 + 0.088)  # 0.15 pay for 0.2 of 0.288
    assert prices.bill([m5]) == pytest.approx(0.15)
    assert prices.bill([c5]) == pytest.approx(0.15 + 0.085)
    assert prices.bill([]) == 0.15


def test_a_discount_that_means_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agreed.yaml"
    path.write_text("discounts: [{percent: 120}]")
    with pytest.raises(InvalidInput, match="120"):
        book.open_book(discounts=str(path))
    assert Discount(10).capacity == "on-demand"
