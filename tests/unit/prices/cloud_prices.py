"""A server that answers as the clouds' price services do, in the shapes of their documentation."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import HttpServer, Request

AWS_COLUMNS = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "Unit", "PricePerUnit",
    "Currency", "Product Family", "Region Code", "Instance Type", "vCPU", "Memory", "Tenancy", "Operating System",
    "License Model", "CapacityStatus", "Pre Installed S/W",
)  # fmt: skip

TABLE_DATE = "2026-07-20"
AMAZONS = {
    "c5.large": 0.085,
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m5.2xlarge": 0.384,
    "m5.4xlarge": 0.768,
    "r5.xlarge": 0.252,
}


def write_table(folder: Path) -> Path:
    """Amazon's prices in us-east-1, as `headroom prices refresh` had kept them on another day."""
    folder.mkdir(parents=True, exist_ok=True)
    table = {
        "cloud": "aws",
        "date": TABLE_DATE,
        "source": "a test",
        "regions": ["us-east-1"],
        "on_demand": {name: [price] for name, price in AMAZONS.items()},
    }
    path = folder / "aws-us-east-1.json"
    path.write_text(json.dumps(table))
    return path


def aws_offer(kind: str, price: str, **other: str) -> dict[str, str]:
    usual = {
        "TermType": "OnDemand",
        "Unit": "Hrs",
        "Currency": "USD",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
    }
    return {**usual, "Instance Type": kind, "PricePerUnit": price, **other}


def aws_list(*offers: Mapping[str, str]) -> str:
    out = io.StringIO()
    out.write('"FormatVersion","v1.0"\n"Disclaimer","informational"\n"Publication Date","2026-11-01T00:00:00Z"\n')
    out.write('"Version","20261101"\n"OfferCode","AmazonEC2"\n')
    writer = csv.DictWriter(out, AWS_COLUMNS, restval="", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(offers)
    return out.getvalue()


def azure_item(kind: str, price: float, sku: str = "", **other: Any) -> dict[str, Any]:
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "skuName": sku or kind,
        "productName": "Virtual Machines Dsv5 Series",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": kind,
        **other,
    }


def google_sku(description: str, nanos: int, usage: str = "OnDemand", region: str = "europe-west3") -> dict[str, Any]:
    unit = "GiBy.h" if "Ram" in description else "h"
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
    return {
        "skuId": "0000-0000-0000",
        "description": description,
        "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "usageType": usage},
        "serviceRegions": [region],
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [rate]}}],
    }


class CloudPrices(HttpServer):
    """`answers` by path; those of a path with a list come one after the other, by page."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, bytes | list[bytes]] = {}
        self.asked: list[str] = []

    def answer(self, request: Request) -> tuple[int, bytes]:
        self.asked.append(request.path)
        parts = urlsplit(request.path)
        found = self.answers.get(parts.path)
        if found is None:
            return 404, b"no such page"
        if isinstance(found, list):
            query = parse_qs(parts.query)
            found = found[int((query.get("$skip") or query.get("pageToken") or ["0"])[0])]
        return 200, found


def as_json(document: object) -> bytes:
    return json.dumps(document).encode()
