"""`headroom prices refresh`: fetches a region's present list prices from its cloud, and stores them in a folder."""

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from deploy.prices import aws, azure, google
from deploy.prices.azure import AzurePage
from deploy.prices.google import GooglePage
from manager.autoscaler.pricing.list_prices import AmountsByRegion, PricedCloud, PriceTable
from shared.errors import HeadroomError, InvalidInput, shown

TIMEOUT_SECONDS = 120.0
MOST_PAGES = 500
MOST_PAGE_BYTES = 64 << 20


@dataclass(frozen=True)
class PriceSources:
    """The servers to query; Google's catalog requires a project's key."""

    aws_url: str = aws.LIST_URL
    spot_url: str = aws.SPOT_URL
    azure_url: str = azure.URL
    google_url: str = google.URL
    google_key: str = ""


def refresh(cloud: PricedCloud, region: str, sources: PriceSources, now: float) -> PriceTable:
    """The table of this region, as of `now` in Unix seconds. Raises HeadroomError and InvalidInput."""
    date = dt.datetime.fromtimestamp(now, dt.UTC).date().isoformat()
    with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
        match cloud:
            case PricedCloud.AWS:
                table = _aws(client, region, sources, date)
            case PricedCloud.AZURE:
                table = _azure(client, region, sources, date)
            case PricedCloud.GCP:
                table = _google(client, region, sources, date)
    if not table.on_demand and not table.cores:
        problem = "there are no prices of machines there"
        raise InvalidInput(source="command line", field="--region", value=region, problem=problem)
    return table


def save(table: PriceTable, folder: Path) -> Path:
    """Writes a new file and renames it, so that readers never see half of it. Raises HeadroomError."""
    path = folder / f"{table.cloud}-{table.regions[0]}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1))
        beside.replace(path)
    except OSError as error:
        raise HeadroomError(f"{path}: {error}") from error
    return path


def _aws(client: httpx.Client, region: str, sources: PriceSources, date: str) -> PriceTable:
    url = f"{sources.aws_url}{aws.list_path(region)}"
    prices = aws.on_demand(_lines(client, url), url)
    advice = f"{sources.spot_url}{aws.SPOT_PATH}"
    spot = aws.spot(_get(client, advice), region, prices, advice)
    source = "AWS Price List, Linux, shared tenancy; spot by the Spot Advisor's savings"
    return PriceTable(PricedCloud.AWS, date, source, [region], on_demand=_rows(prices), spot=_rows(spot))


def _azure(client: httpx.Client, region: str, sources: PriceSources, date: str) -> PriceTable:
    prices, spot = azure.by_kind(_azure_pages(client, sources.azure_url, region))
    source = "Azure Retail Prices, Linux, pay as you go and spot"
    return PriceTable(PricedCloud.AZURE, date, source, [region], on_demand=_rows(prices), spot=_rows(spot))


def _azure_pages(client: httpx.Client, url: str, region: str) -> Iterator[AzurePage]:
    """The pages; a link to the next page is followed on the same server only."""
    path: str | None = azure.first_path(region)
    for _ in range(MOST_PAGES):
        if not path:
            return
        answer = azure.page(_get(client, f"{url}{path}"), url)
        yield answer
        path = None if not answer.next_page else httpx.URL(answer.next_page).raw_path.decode()
    raise HeadroomError(f"{url}: more than {MOST_PAGES} pages")


def _google(client: httpx.Client, region: str, sources: PriceSources, date: str) -> PriceTable:
    if not sources.google_key:
        problem = "Google's catalog asks for the API key of a project: name a file with it"
        raise InvalidInput(source="command line", field="--google-key-file", value="", problem=problem)
    found = google.families(_google_pages(client, sources), region)
    return PriceTable(
        PricedCloud.GCP,
        date,
        "Google Cloud Billing Catalog, cores and memory of predefined machines",
        [region],
        cores=_rows(found.cores),
        memory_gib=_rows(found.memory_gib),
        spot_cores=_rows(found.spot_cores),
        spot_memory_gib=_rows(found.spot_memory_gib),
    )


def _google_pages(client: httpx.Client, sources: PriceSources) -> Iterator[GooglePage]:
    token = ""
    for _ in range(MOST_PAGES):
        answer = google.page(
            _get(client, f"{sources.google_url}{google.path(sources.google_key, token)}"), sources.google_url
        )
        yield answer
        token = answer.next_page_token
        if not token:
            return
    raise HeadroomError(f"{sources.google_url}: more than {MOST_PAGES} pages")


def _rows(prices: Mapping[str, float]) -> dict[str, AmountsByRegion]:
    return {name: [price] for name, price in sorted(prices.items())}


def _get(client: httpx.Client, url: str) -> bytes:
    """The content. Raises HeadroomError, which leaves out the query, as it may hold a key."""
    name = url.partition("?")[0]
    content = bytearray()
    try:
        with client.stream("GET", url) as answer:
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > MOST_PAGE_BYTES:
                    raise HeadroomError(f"{name}: an answer of more than {MOST_PAGE_BYTES} bytes")
            status = answer.status_code
    except httpx.HTTPError as error:
        raise HeadroomError(f"{name}: {error}") from error
    if status != httpx.codes.OK:
        raise HeadroomError(f"{name}: {status} {shown(bytes(content[:200]).decode(errors='replace'))}")
    return bytes(content)


def _lines(client: httpx.Client, url: str) -> Iterator[str]:
    """The lines of the content. Raises HeadroomError."""
    try:
        with client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                raise HeadroomError(f"{url}: {answer.status_code}")
            yield from answer.iter_lines()
    except httpx.HTTPError as error:
        raise HeadroomError(f"{url}: {error}") from error
