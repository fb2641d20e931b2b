"""The prices of a cluster's machines in the user's currency, with the agreed discounts and commitments."""

import fnmatch
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from deploy import rendering
from deploy.prices.estimates import BY_SIZE, EstimatingPricing
from manager.autoscaler.pricing import gce, list_prices, price_sources
from manager.autoscaler.pricing.list_prices import ListPricing, PriceTable
from manager.autoscaler.pricing.model import GuessedPrice, Machine, PricingModel, Unpriced, known_node_price
from shared import yaml_file
from shared.quantity import Amounts

DOLLARS = "USD"
FOLDER = "HEADROOM_PRICES"  # environment variable with the folder of refreshed tables

Percent = Annotated[float, Meta(ge=0, lt=100)]
Rate = Annotated[float, Meta(gt=0, le=1e6)]


class Discount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share off the list price of machine types that match the patterns (empty: all); `capacity` is on-demand, spot
    or any.
    """

    percent: Percent
    machine_types: tuple[str, ...] = ()
    capacity: Annotated[str, Meta(pattern="^(on-demand|spot|any)$")] = "on-demand"


class Commitment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`per_hour`, in the file's currency, is paid regardless of use; it covers on-demand machines up to that discounted
    cost, of machine types of these patterns (empty: of all).
    """

    per_hour: Annotated[float, Meta(gt=0, le=1e9)]
    percent: Percent
    machine_types: tuple[str, ...] = ()


class Agreements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of `--discounts`: `rate` is how much of the `currency` a dollar costs."""

    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = DOLLARS
    rate: Rate = 1.0
    discounts: tuple[Discount, ...] = ()
    commitments: tuple[Commitment, ...] = ()


@dataclass(frozen=True)
class PriceBook:
    """See `PricingModel`; in the agreements' currency per hour. `said` names the sources of the prices."""

    model: PricingModel
    agreements: Agreements = field(default_factory=Agreements)
    said: str = ""

    @property
    def currency(self) -> str:
        return self.agreements.currency

    def node_price(self, machine: Machine) -> float:
        """The price with the largest applicable discount. Raises Unpriced."""
        return self._agreed(self.model.node_price(machine), machine)

    def known_node_price(self, machine: Machine) -> float:
        """The same for a known price, not a guess. Raises Unpriced."""
        return self._agreed(known_node_price(self.model, machine), machine)

    def is_estimate(self, machine: Machine) -> bool:
        """Whether the machine's price is a guess by its size."""
        try:
            self.known_node_price(machine)
        except GuessedPrice:
            return True
        return False

    def _agreed(self, listed: float, machine: Machine) -> float:
        price = listed * self.agreements.rate
        kind = "spot" if list_prices.is_spot_machine(machine) else "on-demand"
        percents = [
            each.percent
            for each in self.agreements.discounts
            if each.capacity in (kind, "any") and _is_of(machine, each.machine_types)
        ]
        return price * (1 - max(percents, default=0.0) / 100)

    def source(self, machines: Iterable[Machine]) -> str:
        """The source of these machines' prices."""
        if not isinstance(self.model, EstimatingPricing | ListPricing):
            return self.said
        said = sorted({self.model.said(each) for each in machines})
        return f"list prices, {', '.join(said)}" if said else "no known machine type"

    def pod_price(self, requests: Amounts) -> float:
        return self.model.pod_price(requests) * self.agreements.rate

    def bill(self, machines: Sequence[tuple[Machine, float]]) -> float:
        """The total cost of machines with these prices per hour. A commitment is paid in full even if it is not used
        up.
        """
        left = [0.0 if list_prices.is_spot_machine(machine) else price for machine, price in machines]
        total = sum(price for _, price in machines)
        for each in self.agreements.commitments:
            covers = each.per_hour / (1 - each.percent / 100)
            total += each.per_hour
            for place, (machine, _) in enumerate(machines):
                if covers <= 0:
                    break
                if left[place] > 0 and _is_of(machine, each.machine_types):
                    covered = min(left[place], covers)
                    left[place] -= covered
                    covers -= covered
                    total -= covered
        return total


def _is_of(machine: Machine, patterns: Sequence[str]) -> bool:
    name = gce.machine_type(machine.labels)
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def open_book(prices: str = "auto", discounts: str = "", region: str = "") -> PriceBook:
    """The price book; `prices` is "auto" for the tables, or the user's own file. Raises InvalidInput."""
    agreements = yaml_file.load(Path(discounts), Agreements) if discounts else Agreements()
    if prices != "auto":
        return PriceBook(beyond_tables(price_sources.load(Path(prices)), prices), agreements, f"file {prices}")
    return PriceBook(automatic(region), agreements, "list prices")


def beyond_tables(model: PricingModel, path: str) -> PricingModel:
    """The prices at this path. A folder of tables is what `headroom prices refresh` has fetched so far, so that what it
    lacks is estimated; a single file is taken at its word.
    """
    return EstimatingPricing(model) if isinstance(model, ListPricing) and Path(path).is_dir() else model


def automatic(region: str = "") -> EstimatingPricing:
    """The prices where the user names none; `region` stands in for that of every machine. Raises InvalidInput."""
    return EstimatingPricing(ListPricing(read_refreshed(), region))


def folder() -> Path:
    """The folder of refreshed tables."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "headroom" / "prices"


def read_refreshed() -> list[PriceTable]:
    """The refreshed tables. Raises InvalidInput for an unreadable one."""
    there = folder()
    return list_prices.read_tables(there) if there.is_dir() else []


def how_to_price(machines: Iterable[Machine]) -> str:
    """How to give these machines a price: tables of their regions, or the user's own file."""
    regions = {(list_prices.cloud_of(gce.machine_type(each.labels)), list_prices.region_of(each)) for each in machines}
    commands = [f"`headroom prices refresh {cloud} --region {region}`" for cloud, region in regions if cloud and region]
    return f"{' and '.join(sorted(commands))} fetches prices" if commands else "--prices FILE gives prices of your own"


def remedy(machines: Iterable[Machine], kinds: Iterable[str]) -> str:
    """How to give these machines of these types a price, and how sums show that they have none."""
    return (
        f"{how_to_price(machines)}; until then ~ marks what rests on a price that is {BY_SIZE} "
        f"(machine type {rendering.names(sorted(kinds))})"
    )


def price(book: PriceBook, machine: Machine) -> float | None:
    """The price, None without one."""
    try:
        return book.node_price(machine)
    except Unpriced:
        return None
