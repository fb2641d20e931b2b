"""Amazon's prices: the public Price List of EC2 for one region, and the Spot Advisor's savings. No credentials needed.

The list is CSV of some hundred megabytes, read line by line: five lines about it, a header, a line for each offer.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping

from shared.errors import InvalidInput

LIST_URL = "https://pricing.us-east-1.amazonaws.com"
SPOT_URL = "https://spot-bid-advisor.s3.amazonaws.com"
SPOT_PATH = "/spot-advisor-data.json"
_HEADER_LINES = 5
_WANTED = {
    "TermType": "OnDemand",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "CapacityStatus": "Used",
    "Pre Installed S/W": "NA",
    "Unit": "Hrs",
    "Currency": "USD",
}


def list_path(region: str) -> str:
    return f"/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"


def on_demand(lines: Iterable[str], source: str) -> dict[str, float]:
    """Dollars an hour by instance type, of shared Linux machines. Raises InvalidInput for any other list."""
    rows: Iterator[list[str]] = csv.reader(lines)
    header: list[str] = []
    for number, row in enumerate(rows):
        if "TermType" in row:
            header = row
            break
        if number > _HEADER_LINES:
            break
    missing = [name for name in ("Instance Type", "PricePerUnit", *_WANTED) if name not in header]
    if missing:
        problem = f"not a price list of EC2: no column {missing[0]}"
        raise InvalidInput(source=source, field="header", value=header[:3], problem=problem)
    places = {name: header.index(name) for name in ("Instance Type", "PricePerUnit", *_WANTED)}
    found: dict[str, float] = {}
    for row in rows:
        if len(row) < len(header) or any(row[places[name]] != value for name, value in _WANTED.items()):
            continue
        kind, text = row[places["Instance Type"]], row[places["PricePerUnit"]]
        try:
            price = float(text)
        except ValueError as error:
            raise InvalidInput(source=source, field=f"{kind} PricePerUnit", value=text, problem=str(error)) from error
        if kind and price > 0:
            found[kind] = price
    return found


def spot(document: bytes, region: str, prices: Mapping[str, float], source: str) -> dict[str, float]:
    """Dollars an hour: the on-demand price less the Spot Advisor's savings on spot machines. Raises InvalidInput."""
    try:
        linux = json.loads(document)["spot_advisor"].get(region, {}).get("Linux", {})
        savings = {kind: float(said["s"]) for kind, said in linux.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"not what the Spot Advisor publishes: {error}"
        raise InvalidInput(source=source, field="spot_advisor", value=document[:60], problem=problem) from error
    return {
        kind: round(prices[kind] * (1 - percent / 100), 6)
        for kind, percent in savings.items()
        if kind in prices and 0 <= percent < 100
    }
