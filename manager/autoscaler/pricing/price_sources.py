"""The prices that a path names: tables of list prices, or a file of the user's own."""

import json
from pathlib import Path

from manager.autoscaler.pricing import list_prices, price_file
from manager.autoscaler.pricing.list_prices import ListPricing
from manager.autoscaler.pricing.model import PricingModel
from shared.errors import InvalidInput


def load(path: Path) -> PricingModel:
    """A table of `headroom prices refresh`, a folder of such tables, or a file of prices.

    Raises InvalidInput that names file, field and value.
    """
    if not path.is_dir() and not _is_table(path):
        return price_file.load(path)
    tables = list_prices.read_tables(path)
    if not tables:
        problem = "there is no table in this folder: `headroom prices refresh` makes them"
        raise InvalidInput(source="flags", field="prices", value=str(path), problem=problem)
    return ListPricing(tables)


def _is_table(path: Path) -> bool:
    """A price file may be JSON, too; what cannot be read is for its reader to refuse."""
    if path.suffix != ".json":
        return False
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and "cloud" in document
