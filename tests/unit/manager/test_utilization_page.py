"""The page on groups that scale by utilization names what there is."""

import msgspec
import pytest

from manager.autoscaler.utilization.node_groups import NodeGroup
from tests.support.apiserver import ROOT

PAGE = (ROOT / "docs" / "reference" / "utilization.md").read_text()
DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(NodeGroup)}
FURTHER = (*tuple(DEFAULTS)[tuple(DEFAULTS).index("own_options") + 1 :],)


@pytest.mark.parametrize("name", [name for name in FURTHER if name != "provider"])
def test_every_further_key_is_told_with_its_default(name: str) -> None:
    default = DEFAULTS[name]
    said = {True: "true", False: "false", None: "", "": ""}.get(default, str(default))
    assert f"\n| `{name}` | " + (f"`{said}` |" if said else "") in PAGE


def test_the_readme_leads_there_by_way_of_the_migration() -> None:
    assert "(docs/how-to/escalator.md)" in (ROOT / "README.md").read_text()
    assert "(../reference/utilization.md)" in (ROOT / "docs" / "how-to" / "escalator.md").read_text()
