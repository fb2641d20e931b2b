"""The kinds of values that several sections share."""

from typing import Annotated

from msgspec import Meta

MOST_SECONDS = 2_592_000.0  # thirty days: more is a mistake
Key = Annotated[str, Meta(min_length=1)]
