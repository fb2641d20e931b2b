"""What Karpenter itself knows of offerings: prices that follow the market and NodeOverlays, and what is out of stock.

Karpenter's providers publish both as metrics. What they do not say, the file does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from manager.autoscaler.cloudprovider.karpenter.catalogue import KarpenterMachineType, Offering, OfferingPrice
from manager.autoscaler.cloudprovider.karpenter.config import SOLD_OUT_SECONDS, KarpenterCloud
from manager.autoscaler.cloudprovider.karpenter.registry import SoldOut
from shared.clock import Clock
from shared.errors import shown

PRICE = "karpenter_cloudprovider_instance_type_offering_price_estimate"
AVAILABLE = "karpenter_cloudprovider_instance_type_offering_available"
READ_SECONDS = 60.0  # providers look at prices every few hours, and note a stockout at once
STALE_SECONDS = 600.0
TIMEOUT_SECONDS = 3.0
MAX_BYTES = 32 << 20
MAX_OFFERINGS = 50_000


class Unreadable(Exception):
    """The metrics cannot be had, or are none; the message says why."""


@dataclass(frozen=True)
class OfferingReports:
    """Prices per hour, and offerings that cannot be launched now. Both may lack offerings."""

    prices: Mapping[Offering, float] = field(default_factory=dict)
    unavailable: frozenset[Offering] = frozenset()

    def applied(self, cloud: KarpenterCloud) -> KarpenterCloud:
        """The file with these prices. A type without offerings in the file gets all that have a price."""
        known: dict[str, list[OfferingPrice]] = {each.name: [] for each in cloud.machine_types}
        for each, price in self.prices.items():
            if each.machine_type in known:
                offered = OfferingPrice(zone=each.zone, capacity_type=each.capacity_type, price=price)
                known[each.machine_type].append(offered)
        types = tuple(_priced(each, known[each.name]) for each in cloud.machine_types)
        return msgspec.structs.replace(cloud, machine_types=types)

    def sold_out(self, cloud: KarpenterCloud, now: float) -> dict[str, SoldOut]:
        """What cannot be launched, by offering as text, at `now` in Unix seconds."""
        found = SoldOut(now + SOLD_OUT_SECONDS, "Karpenter's metrics say that it is not available")
        names = {each.name for each in cloud.machine_types}
        return {str(each): found for each in self.unavailable if each.machine_type in names}


def _priced(machine: KarpenterMachineType, known: list[OfferingPrice]) -> KarpenterMachineType:
    """Without prices that the type cannot have."""
    plausible = [each for each in known if not machine.price_problem(each.price)]
    prices = {(each.zone, each.capacity_type): each.price for each in plausible}
    offerings = tuple(
        msgspec.structs.replace(each, price=prices.get((each.zone, each.capacity_type), each.price))
        for each in machine.offerings or plausible
    )
    return msgspec.structs.replace(machine, offerings=offerings)


def parsed(text: str) -> OfferingReports:
    """Of Prometheus' text format. Values that are no prices are left out. Raises Unreadable."""
    lines = [line for line in text.splitlines() if line.startswith((PRICE, AVAILABLE))]
    if not lines:
        raise Unreadable(f"it has no {PRICE}")
    if len(lines) > 2 * MAX_OFFERINGS:
        raise Unreadable(f"it has {len(lines)} lines of offerings, more than {2 * MAX_OFFERINGS}")
    prices: dict[Offering, float] = {}
    unavailable: set[Offering] = set()
    try:
        for metric in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in metric.samples:
                found = _offering(sample.labels)
                if found is None:
                    continue
                if sample.name == AVAILABLE and sample.value == 0:
                    unavailable.add(found)
                elif sample.name == PRICE and _is_price(found, sample.value):
                    prices[found] = float(sample.value)
    except ValueError as error:
        raise Unreadable(f"it is not in Prometheus' text format: {error}") from error
    return OfferingReports(prices, frozenset(unavailable))


def _offering(labels: Mapping[str, str]) -> Offering | None:
    try:
        return Offering(labels["instance_type"], labels["zone"], labels["capacity_type"])
    except KeyError:
        return None


def _is_price(offering: Offering, value: float) -> bool:
    """By the rules of the file; a price of 0 is what a provider says of a price that it does not know."""
    given = {"zone": offering.zone, "capacity_type": offering.capacity_type, "price": value}
    try:
        return msgspec.convert(given, OfferingPrice).price > 0
    except msgspec.ValidationError:
        return False


class OfferingReader:
    """Reads the metrics again after a while; for one thread. What it has read holds for ten minutes."""

    def __init__(self, clock: Clock) -> None:
        self.problem = ""
        self._clock = clock
        self._url = ""
        self._read_at: float | None = None
        self._found_at = 0.0
        self._found = OfferingReports()

    def reports(self, url: str) -> OfferingReports:
        """Empty without a URL, and while nothing is known; `problem` says why."""
        now = self._clock.monotonic()
        if url != self._url:
            self._url, self._read_at, self._found, self.problem = url, None, OfferingReports(), ""
        if url and (self._read_at is None or now - self._read_at >= READ_SECONDS):
            self._read_at = now
            try:
                self._found, self._found_at, self.problem = parsed(_fetched(url)), now, ""
            except Unreadable as error:
                self.problem = f"{shown(url)}: {error}"
        if now - self._found_at > STALE_SECONDS:
            self._found = OfferingReports()
        return self._found


def _fetched(url: str) -> str:
    """Raises Unreadable."""
    import httpx  # here, because only managers with such a file need it

    try:
        with httpx.stream("GET", url, timeout=TIMEOUT_SECONDS) as answer:
            answer.raise_for_status()
            return _limited(answer.iter_bytes()).decode()
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeDecodeError) as error:
        raise Unreadable(str(error) or type(error).__name__) from error


def _limited(chunks: Iterable[bytes]) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > MAX_BYTES:
            raise Unreadable(f"it is larger than {MAX_BYTES >> 20} MiB")
    return bytes(found)
