"""The table "to add X" of CONTRIBUTING.md names files and names that exist."""

import re

import pytest

from tests.support.apiserver import ROOT

TABLE = (ROOT / "CONTRIBUTING.md").read_text().partition("## To add X")[2].partition("\n## ")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| a")]
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:toml|yml))`")
NAME = re.compile(r"`([A-Z][A-Za-z_]+)`")


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize("path", sorted({path for row in ROWS for path in PATH.findall(row)}))
def test_a_file_that_the_table_names_exists(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file() or (ROOT / path).is_dir()


@pytest.mark.parametrize("row", [row for row in ROWS if NAME.search(row)])
def test_a_name_of_a_row_is_in_the_files_that_the_row_names(row: str) -> None:
    named = [ROOT / path for path in PATH.findall(row)] or [ROOT / "shared", ROOT / "headroom_api"]
    files = [file for each in named for file in (each.rglob("*") if each.is_dir() else [each]) if file.is_file()]
    text = "\n".join(file.read_text() for file in files if file.suffix in (".py", ".js", ".html"))
    assert [name for name in NAME.findall(row) if not re.search(rf"\b{name}\b", text)] == []
