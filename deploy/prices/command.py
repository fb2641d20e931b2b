"""The command line of `headroom prices`. It imports its code only when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from deploy import examples

prices_app = typer.Typer(help="List prices of machines, and renew them", epilog=examples.PRICES)


@prices_app.command("show", epilog=examples.PRICES_SHOW)
def prices_show() -> int:
    """Show the known prices: clouds, regions, number of machine types, and their date."""
    from deploy import rendering
    from deploy.prices import book
    from manager.autoscaler.pricing import list_prices

    rows: list[tuple[str, ...]] = []
    for table in sorted(book.read_refreshed(), key=lambda each: (each.cloud, each.regions)):
        kinds = len(table.on_demand) or len(table.cores)
        spot = len(table.spot) or len(table.spot_cores)
        rows.append((table.cloud, table.date, rendering.names(table.regions), str(kinds), str(spot), table.source))
    rows.append(("gcp", "-", list_prices.GCE_REGION, "all", "all", "as Cluster Autoscaler has them"))
    header = ("CLOUD", "OF", "REGIONS", ">MACHINE TYPES", ">SPOT", "SOURCE")
    print("\n".join(rendering.table(header, rows)), flush=True)
    return 0


@prices_app.command("refresh", epilog=examples.PRICES_REFRESH)
def prices_refresh(
    cloud: Annotated[str, typer.Argument(help="aws, azure or gcp.")],
    region: Annotated[list[str], typer.Option(help="Region to fetch. Repeatable.")],
    google_key_file: Annotated[Path | None, typer.Option(help="File with an API key for Google's catalog.")] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder of the tables. Default: HEADROOM_PRICES, or else the user's data folder."),
    ] = None,
    url: Annotated[str, typer.Option(metavar="URL", help="Server to use in place of the cloud's.")] = "",
) -> int:
    """Fetch the prices of regions from their cloud. Google's replace those that Headroom contains."""
    import time

    from deploy.prices import book, refresh
    from manager.autoscaler.pricing.list_prices import PricedCloud
    from shared.errors import InvalidInput

    if cloud not in tuple(PricedCloud):
        problem = f"expected one of {', '.join(PricedCloud)}"
        raise InvalidInput(source="command line", field="CLOUD", value=cloud, problem=problem)
    key = ""
    if google_key_file is not None:
        try:
            key = google_key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                source="command line", field="--google-key-file", value=str(google_key_file), problem=str(error)
            ) from error
    sources = refresh.PriceSources(google_key=key)
    if url:
        root = url.rstrip("/")
        sources = refresh.PriceSources(root, root, root, root, key)
    for each in region:
        table = refresh.refresh(PricedCloud(cloud), each, sources, time.time())
        path = refresh.save(table, to or book.folder())
        what = f"{len(table.on_demand)} machine types, {len(table.spot)} as spot"
        if table.cores:
            what = f"{len(table.cores)} families of machines, {len(table.spot_cores)} as spot"
        print(f"{path}: {what}", flush=True)
    return 0
