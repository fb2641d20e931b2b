"""Rows of conformance files: `{"cases": [{"id", "group", "input", "expected"}, ...]}`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.errors import InvalidInput

_GROUP_KEYS = ("group", "area", "category", "kind")


@dataclass(frozen=True)
class Row:
    """One input with the answer it must give; a scenario tells its situation in words."""

    file: str
    id: str
    group: str
    input: object
    expected: object
    tolerance: float
    scenario: bool


def read(path: Path) -> Iterator[Row | InvalidInput]:
    """All rows of a file, or of the .json files of a folder, and what is wrong with what is none. Files without `cases`
    are data. Raises InvalidInput for a file that is no JSON.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(source=str(file), field="(document)", value=file.name, problem=str(error)) from error
        cases = document.get("cases", []) if isinstance(document, dict) else []
        if not isinstance(cases, list):
            yield InvalidInput(source=file.name, field="cases", value=cases, problem="expected a list of rows")
            continue
        for position, case in enumerate(cases):
            try:
                yield _row(file.name, position, case)
            except InvalidInput as unknown:
                yield unknown


def _row(file: str, position: int, case: object) -> Row:
    field = f"cases[{position}]"
    if not isinstance(case, dict) or "input" not in case or "expected" not in case:
        raise InvalidInput(source=file, field=field, value=case, problem="a row needs input and expected")
    group = next((str(case[key]) for key in _GROUP_KEYS if key in case), None)
    if group is None:
        raise InvalidInput(source=file, field=field, value=case, problem=f"a row needs one of {', '.join(_GROUP_KEYS)}")
    return Row(
        file=file,
        id=str(case.get("id", field)),
        group=group,
        input=case["input"],
        expected=case["expected"],
        tolerance=_tolerance(file, field, case.get("tolerance")),
        scenario=bool(case.get("scenario", False)),
    )


def _tolerance(file: str, field: str, given: object) -> float:
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or given < 0:
        problem = "expected a number from 0 on"
        raise InvalidInput(source=file, field=f"{field}.tolerance", value=given, problem=problem)
    return float(given)
