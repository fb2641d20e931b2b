"""Azure's prices: the Retail Prices API, which needs no credentials and answers page by page."""

from collections.abc import Iterable
from urllib.parse import urlencode

import msgspec

from shared.errors import InvalidInput

URL = "https://prices.azure.com"
_PATH = "/api/retail/prices"
_UNWANTED = ("Low Priority",)


class _Item(msgspec.Struct, frozen=True, rename="camel"):
    """One price; absent fields are empty."""

    retail_price: float = 0.0
    currency_code: str = ""
    arm_sku_name: str = ""
    sku_name: str = ""
    product_name: str = ""
    unit_of_measure: str = ""
    type: str = ""


class AzurePage(msgspec.Struct, frozen=True):
    items: list[_Item] = msgspec.field(name="Items", default_factory=list)
    next_page: str | None = msgspec.field(name="NextPageLink", default=None)


def first_path(region: str) -> str:
    """The path of the first page of a region's machines."""
    wanted = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'"
    return f"{_PATH}?{urlencode({'api-version': '2023-01-01-preview', '$filter': wanted})}"


def page(content: bytes, source: str) -> AzurePage:
    """A page of offers. Raises InvalidInput."""
    try:
        return msgspec.json.decode(content, type=AzurePage)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"not what Azure Retail Prices answers: {error}"
        raise InvalidInput(source=source, field="(document)", value=content[:60], problem=problem) from error


def by_kind(pages: Iterable[AzurePage]) -> tuple[dict[str, float], dict[str, float]]:
    """Dollars an hour on demand and as spot, by machine type; the cheaper of two offers, as regions sell some twice."""
    on_demand: dict[str, float] = {}
    spot: dict[str, float] = {}
    for each in pages:
        for item in each.items:
            if (
                item.retail_price <= 0
                or item.unit_of_measure != "1 Hour"
                or item.currency_code != "USD"
                or item.type != "Consumption"
                or "Windows" in item.product_name
                or not item.arm_sku_name
                or any(item.sku_name.endswith(kind) for kind in _UNWANTED)
            ):
                continue
            found = spot if item.sku_name.endswith("Spot") else on_demand
            known = found.get(item.arm_sku_name)
            found[item.arm_sku_name] = item.retail_price if known is None else min(known, item.retail_price)
    return on_demand, spot
