"""A list of gigabytes is read item by item, and any other layout as a whole."""

import json
from pathlib import Path

import pytest

from deploy import dump_stream

ITEMS = [
    {"kind": "Pod", "metadata": {"name": "a", "annotations": {"text": "}\n        },\n        {"}}},
    {"kind": "Node", "metadata": {"name": "ü", "labels": {}}, "list": [{"x": 1}, {"y": [2]}]},
    {"kind": "Pod"},
]


def printed(items: object, kind: str = "List") -> str:
    """As kubectl prints it."""
    document = {"apiVersion": "v1", "items": items, "kind": kind, "metadata": {"resourceVersion": ""}}
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("block", [1, 7, 40, 1 << 20])
def test_items_are_the_same_however_the_file_is_cut(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_stream, "BLOCK_BYTES", block)
    path, read = tmp_path / "dump.json", list[int]()
    path.write_text(printed(ITEMS))
    found = dump_stream.items(path, read.append)
    assert found is not None
    assert [json.loads(item) for item in found] == ITEMS
    assert 0 < sum(read) < path.stat().st_size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        printed([]),
        json.dumps({"apiVersion": "v1", "items": ITEMS, "kind": "List"}),
        printed(ITEMS)[:-9],
        printed(ITEMS) + printed(ITEMS)[:40],
        "apiVersion: v1\nitems: []\nkind: List\n",
    ],
)
def test_what_is_laid_out_otherwise_is_left_to_another_reader(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dump.json"
    path.write_text(text)
    assert dump_stream.items(path) is None
