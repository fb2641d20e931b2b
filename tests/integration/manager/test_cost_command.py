"""`headroom cost`: the same numbers as the API's, by namespace and by label."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from deploy import costs
from deploy.manager_api import ManagerApi
from deploy.rendering import HOURS_PER_MONTH
from shared.errors import HeadroomError, InvalidInput
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager import page_manager

pytestmark = pytest.mark.own_decision("the command asks the manager, and no API server")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with page_manager.served(9) as served:
        yield served


def printed(url: str, *, label: str = "", top: int = 20, style: str = "table") -> str:
    with closing(ManagerApi(url)) as api:
        return costs.run(api, label=label, top=top, style=style)


def told(url: str, path: str) -> Any:
    return LOCAL_HTTP.get(f"{url}/api/v1/{path}").json()


def cells(line: str) -> list[str]:
    return [each.removeprefix("~").replace(",", "") for each in line.split()]


def test_each_namespace_has_a_line_with_the_numbers_of_the_api(url: str) -> None:
    heading, *lines, last = printed(url).splitlines()
    assert heading.split()[0] == "NAMESPACE"
    rows = told(url, "costs/namespaces")["namespaces"]
    assert [cells(line) for line in lines] == [
        [row["namespace"], *(f"{HOURS_PER_MONTH * row[part]:.2f}" for part in ("requested", "used"))] for row in rows
    ]
    assert "$/month is requested by no pod" in last
    assert json.loads(printed(url, style="json")) == told(url, "costs/namespaces")


def test_pods_without_the_label_have_a_line_and_what_is_left_out_is_counted(url: str) -> None:
    lines = printed(url, label="team").splitlines()
    names = [row["value"] or "(without" for row in told(url, "costs/labels?key=team")["values"]]
    assert [line.split()[0] for line in lines[1:-1]] == names
    assert "  and 2 more (--top shows more)" in printed(url, label="team", top=1).splitlines()
    assert json.loads(printed(url, label="team", style="json")) == told(url, "costs/labels?key=team")


def test_what_is_no_key_of_a_label_is_refused_before_the_manager_is_asked() -> None:
    with pytest.raises(InvalidInput, match="--label: 'a b': not the key of a label"):
        printed("http://127.0.0.1:9", label="a b")


def test_a_manager_that_is_not_there_is_named() -> None:
    with pytest.raises(HeadroomError, match="no answer of a manager"):
        printed("http://127.0.0.1:9")
