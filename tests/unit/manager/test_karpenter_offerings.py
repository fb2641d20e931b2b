"""Prices and availability of Karpenter's own metrics come before those of the file."""

import msgspec
import pytest
import yaml

from manager.autoscaler.cloudprovider.karpenter import offering_reports
from manager.autoscaler.cloudprovider.karpenter.catalogue import Offering
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterCloud
from manager.autoscaler.cloudprovider.karpenter.offering_reports import (
    AVAILABLE,
    MAX_BYTES,
    PRICE,
    READ_SECONDS,
    STALE_SECONDS,
    OfferingReader,
    Unreadable,
)
from shared.clock import ManualClock
from tests.support.http_server import HttpServer, Request

FILE = """
node_pool: default
metrics_url: http://karpenter:8080/metrics
machine_types:
- name: m6i.xlarge
  allocatable: {cpu: 3920m, memory: 14Gi}
  offerings:
  - {zone: a, price: 0.23}
  - {zone: a, capacity_type: spot, price: 0.09}
- name: c6i.large
  allocatable: {cpu: 1900m, memory: 3Gi}
"""
SPOT = Offering("m6i.xlarge", "a", "spot")


@pytest.fixture
def cloud() -> KarpenterCloud:
    return msgspec.convert(yaml.safe_load(FILE), KarpenterCloud)


def line(name: str, offering: Offering, value: float | str) -> str:
    machine_type, zone, capacity_type = offering
    return f'{name}{{capacity_type="{capacity_type}",instance_type="{machine_type}",zone="{zone}"}} {value}'


def text(*lines: str) -> str:
    return "\n".join(("# HELP go_goroutines Number.", "go_goroutines 12", *lines, ""))


class Karpenter(HttpServer):
    """Its port with metrics."""

    def __init__(self) -> None:
        self.content = text(line(PRICE, SPOT, 0.11)).encode()
        self.status = 200
        self.asked = 0
        super().__init__()

    def answer(self, request: Request) -> tuple[int, bytes]:
        self.asked += 1
        return self.status, self.content


def test_a_price_follows_the_metric_and_others_stay(cloud: KarpenterCloud) -> None:
    found = offering_reports.parsed(text(line(PRICE, SPOT, 0.12))).applied(cloud)
    machine = found.catalogue.types["m6i.xlarge"]
    assert (machine.price("a", "on-demand"), machine.price("a", "spot")) == (0.23, 0.12)


def test_a_type_without_offerings_has_those_that_the_metrics_know(cloud: KarpenterCloud) -> None:
    lines = [line(PRICE, Offering("c6i.large", zone, kind), 0.1) for zone, kind in (("a", "spot"), ("b", "on-demand"))]
    found = offering_reports.parsed(text(*lines, line(PRICE, Offering("m6i.xlarge", "b", "spot"), 0.1))).applied(cloud)
    assert [str(each) for _, each in found.catalogue.offerings("c6i.large", None, ("spot", "on-demand"))] == [
        "c6i.large/a/spot",
        "c6i.large/b/on-demand",
    ]
    assert found.catalogue.types["m6i.xlarge"].price("b", "spot") is None, "the file names its offerings"


@pytest.mark.parametrize("value", ["0", "NaN", "+Inf", "-0.1", "20000", "900"])
def test_what_cannot_be_a_price_leaves_the_price_of_the_file(cloud: KarpenterCloud, value: str) -> None:
    found = offering_reports.parsed(text(line(PRICE, SPOT, value))).applied(cloud)
    assert found.catalogue.types["m6i.xlarge"].price("a", "spot") == 0.09


def test_what_is_not_available_is_out_of_stock(cloud: KarpenterCloud) -> None:
    other = Offering("m6i.xlarge", "a", "on-demand")
    found = offering_reports.parsed(text(line(AVAILABLE, SPOT, 0), line(AVAILABLE, other, 1)))
    (name,) = found.sold_out(cloud, 1000.0)
    assert name == str(SPOT)
    assert found.sold_out(cloud, 1000.0)[name].until == 1300.0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", f"it has no {PRICE}"),
        ("<html></html>", f"it has no {PRICE}"),
        (f"{PRICE}{{zone=", "not in Prometheus' text format"),
        (text(*[line(PRICE, SPOT, 0.1)] * 100_001), "100001 lines"),
    ],
)
def test_what_is_no_metric_is_refused(content: str, problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        offering_reports.parsed(content)


def test_rows_without_their_labels_or_of_unknown_kinds_are_left_out() -> None:
    odd = line(PRICE, Offering("m6i.xlarge", "a", "rented"), 0.1)
    found = offering_reports.parsed(text(f'{PRICE}{{zone="a"}} 1', odd, line(PRICE, SPOT, 0.1)))
    assert dict(found.prices) == {SPOT: 0.1}


def test_metrics_are_read_each_minute_and_hold_for_ten_when_they_cannot_be_read() -> None:
    clock, karpenter = ManualClock(), Karpenter()
    reader = OfferingReader(clock)
    try:
        assert reader.reports(karpenter.url).prices == {SPOT: 0.11}
        reader.reports(karpenter.url)
        assert karpenter.asked == 1
        karpenter.status = 503
        clock.advance(READ_SECONDS)
        assert reader.reports(karpenter.url).prices == {SPOT: 0.11}
        assert "503" in reader.problem
        clock.advance(STALE_SECONDS)
        assert reader.reports(karpenter.url).prices == {}
        karpenter.status = 200
        clock.advance(READ_SECONDS)
        assert reader.reports(karpenter.url).prices == {SPOT: 0.11}
        assert not reader.problem
        assert reader.reports("").prices == {}
    finally:
        karpenter.close()


def test_an_endless_answer_is_cut_off() -> None:
    clock, karpenter = ManualClock(), Karpenter()
    karpenter.content = b"#" * (MAX_BYTES + 1)
    reader = OfferingReader(clock)
    try:
        assert reader.reports(karpenter.url).prices == {}
        assert "larger than 32 MiB" in reader.problem
    finally:
        karpenter.close()
    assert reader.reports("http://127.0.0.1:1/").prices == {}
    assert reader.problem.startswith("'http://127.0.0.1:1/': ")
