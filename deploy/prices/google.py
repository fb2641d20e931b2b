"""Google's prices: the Cloud Billing Catalog, which requires an API key. A machine costs its cores plus its memory."""

import re
from collections.abc import Iterable
from urllib.parse import urlencode

import msgspec

from shared.errors import InvalidInput

URL = "https://cloudbilling.googleapis.com"
_COMPUTE_ENGINE = "6F81-5844-456A"
_NANO = 1e-9
# "N2 Instance Core running in Frankfurt", "Spot Preemptible E2 Instance Ram running in Iowa"
_MACHINE = re.compile(
    r"^(?:Spot Preemptible )?(?P<family>[A-Z]\d+[AD]?)(?: AMD| Arm| Predefined| Memory-optimized)* Instance "
    r"(?P<part>Core|Ram) running in "
)


class _Money(msgspec.Struct, frozen=True, rename="camel"):
    currency_code: str = ""
    units: str = "0"
    nanos: int = 0


class _Rate(msgspec.Struct, frozen=True, rename="camel"):
    unit_price: _Money = _Money()


class _Expression(msgspec.Struct, frozen=True, rename="camel"):
    usage_unit: str = ""
    tiered_rates: list[_Rate] = []


class _PricingInfo(msgspec.Struct, frozen=True, rename="camel"):
    pricing_expression: _Expression = _Expression()


class _Category(msgspec.Struct, frozen=True, rename="camel"):
    resource_family: str = ""
    usage_type: str = ""


class _Sku(msgspec.Struct, frozen=True, rename="camel"):
    description: str = ""
    category: _Category = _Category()
    service_regions: list[str] = []
    pricing_info: list[_PricingInfo] = []


class GooglePage(msgspec.Struct, frozen=True, rename="camel"):
    skus: list[_Sku] = []
    next_page_token: str = ""


class FamilyPrices(msgspec.Struct):
    """Dollars an hour of a core and of a GiB, by family, on demand and as spot."""

    cores: dict[str, float] = {}
    memory_gib: dict[str, float] = {}
    spot_cores: dict[str, float] = {}
    spot_memory_gib: dict[str, float] = {}


def path(key: str, page_token: str = "") -> str:
    query = {"key": key, "pageSize": "5000"} | ({"pageToken": page_token} if page_token else {})
    return f"/v1/services/{_COMPUTE_ENGINE}/skus?{urlencode(query)}"


def page(content: bytes, source: str) -> GooglePage:
    """Raises InvalidInput."""
    try:
        return msgspec.json.decode(content, type=GooglePage)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"not what the Cloud Billing Catalog answers: {error}"
        raise InvalidInput(source=source, field="(document)", value=content[:60], problem=problem) from error


def families(pages: Iterable[GooglePage], region: str) -> FamilyPrices:
    """The families of one region, without custom, sole-tenant and committed machines, which have their own
    descriptions.
    """
    found = FamilyPrices()
    for each in pages:
        for sku in each.skus:
            named = _MACHINE.match(sku.description)
            if named is None or region not in sku.service_regions or sku.category.resource_family != "Compute":
                continue
            price = _price(sku)
            if price is None or sku.category.usage_type not in ("OnDemand", "Preemptible"):
                continue
            is_spot, is_core = sku.category.usage_type == "Preemptible", named["part"] == "Core"
            if is_spot:
                of = found.spot_cores if is_core else found.spot_memory_gib
            else:
                of = found.cores if is_core else found.memory_gib
            of[named["family"].lower()] = price
    return found


def _price(sku: _Sku) -> float | None:
    """Dollars; None if the price is not by the hour, or is zero."""
    if not sku.pricing_info:
        return None
    said = sku.pricing_info[-1].pricing_expression
    if said.usage_unit not in ("h", "GiBy.h") or not said.tiered_rates:
        return None
    money = said.tiered_rates[-1].unit_price
    if money.currency_code != "USD":
        return None
    price = float(money.units) + money.nanos * _NANO
    return round(price, 9) if price > 0 else None
