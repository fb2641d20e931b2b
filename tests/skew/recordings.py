"""The recordings of the versions that this one has to work with."""

import json
import tomllib
from pathlib import Path
from typing import Any

from deploy.versions import SUPPORTED_SKEW, minor_skew

FOLDER = Path(__file__).parent / "recorded"
CURRENT = str(tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"])


def is_released(version: str) -> bool:
    """Whether the changelog has a section of it; until then its answers may still change."""
    return f"\n## [{version}]" in (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")


def supported() -> dict[str, dict[str, Any]]:
    """By version."""
    return {
        file.stem: json.loads(file.read_text())
        for file in sorted(FOLDER.glob("*.json"))
        if minor_skew(file.stem, CURRENT) <= SUPPORTED_SKEW
    }
