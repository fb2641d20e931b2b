"""Dear nodes are replaced by a cheaper one in a real cluster, and the pods run again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.errors import HeadroomError
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.integration.manager.test_autoscaler import PATIENCE_SECONDS, WEB, Town
from tests.integration.manager.test_scale_down import Shrinking
from tests.support import eventually
from tests.support.apiserver import ApiServer

ours = pytest.mark.own_decision("the autoscaler and its cloud decide, whichever API server has the nodes")

DEAR: dict[str, Any] = {**WEB, "price": 1.0}
BARGAIN: dict[str, Any] = {**WEB, "name": "bargain", "machine_type": "n1-standard-8", "max": 2}
EAGER: dict[str, Any] = {
    "consolidation": "price",
    "disruption_budgets": ("100%",),
    "consolidation_min_node_age_seconds": 0.0,
    "consolidation_cooldown_seconds": 0.0,
}


@pytest.fixture
def shrinking(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Shrinking]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    town.offer(DEAR, {**BARGAIN, "price": 9.0})
    shrinking = Shrinking(town)
    yield shrinking
    shrinking.close()
    town.close()


def rows(manager: Any) -> dict[str, dict[str, Any]]:
    found = fetch(manager, "/api/v1/autoscaler/nodes").json()["scale_down"]
    return {row["node"]: row for row in (found or {"nodes": []})["nodes"]}


@ours
def test_a_dear_half_empty_pair_is_replaced_by_one_cheaper_node_and_the_pods_run_again(shrinking: Shrinking) -> None:
    manager = shrinking.manager("0:10:web", "0:2:bargain", **EAGER)
    shrinking.want(2, cpu="2100m")
    before = set(shrinking.eventually_bound(2).values())
    assert len(before) == 2, "each pod is too large for the other's node"
    said = eventually(
        lambda: [row["replacement"] for row in rows(manager).values() if row["node"] in before and row["replacement"]],
        PATIENCE_SECONDS,
    )
    assert all("NoCheaperNodes" in each for each in said)

    shrinking.town.offer(DEAR, {**BARGAIN, "price": 0.9})

    def is_replaced() -> bool:
        return len(shrinking.nodes) == 1 and not before & shrinking.nodes.keys()

    eventually(is_replaced, PATIENCE_SECONDS)
    (name,) = shrinking.nodes
    assert set(shrinking.eventually_bound(2).values()) == {name}
    assert sorted(shrinking.made_again) == ["p0", "p1"]
    assert shrinking.town.targets() == {"web": 0, "bargain": 1}

    def has_clean_books() -> bool:
        kept = shrinking.town.kept()
        return kept.replacing is None and not kept.requests and not kept.backoffs

    eventually(has_clean_books, PATIENCE_SECONDS)
    (row,) = eventually(lambda: [row for row in rows(manager).values() if row["node"] == name], PATIENCE_SECONDS)
    assert row["group"] == "bargain"


def created(shrinking: Shrinking) -> set[str]:
    return set(shrinking.town.targets()) - {"web", "bargain"}


@ours
@pytest.mark.parametrize("dies", [False, True])
def test_a_group_is_created_for_the_replacement_of_a_dear_pair_and_outlives_its_manager(
    shrinking: Shrinking, *, dies: bool
) -> None:
    shrinking.town.offer(DEAR)
    manager = shrinking.manager("0:10:web", **EAGER)
    shrinking.want(2, cpu="2100m")
    before = set(shrinking.eventually_bound(2).values())
    assert len(before) == 2
    manager.close()

    boots = 3.0 if dies else 0.1
    shrinking.town.offer(DEAR, autoprovisioning={"machine_types": ["n1-standard-8"], "boot_seconds": boots})
    settings = {**EAGER, "node_autoprovisioning": True, "max_autoprovisioned_node_group_count": 1}
    manager = shrinking.manager("0:10:web", **settings)
    if dies:
        eventually(lambda: created(shrinking), PATIENCE_SECONDS)
        manager.close()
        manager = shrinking.manager("0:10:web", **settings)
    eventually(lambda: len(shrinking.nodes) == 1 and not before & shrinking.nodes.keys(), PATIENCE_SECONDS)
    assert set(shrinking.eventually_bound(2).values()) == set(shrinking.nodes)
    (group,) = created(shrinking)
    assert group.startswith("nodeautoprovisioning-n1-standard-8")
    assert shrinking.town.targets() == {"web": 0, group: 1}
    eventually(lambda: shrinking.town.kept().replacing is None, PATIENCE_SECONDS)


@ours
def test_a_group_whose_replacement_is_given_up_goes_and_the_old_nodes_stay(shrinking: Shrinking) -> None:
    shrinking.town.offer(DEAR)
    manager = shrinking.manager("0:10:web", **EAGER)
    shrinking.want(2, cpu="2100m")
    before = set(shrinking.eventually_bound(2).values())
    manager.close()

    shrinking.town.offer(DEAR, autoprovisioning={"machine_types": ["n1-standard-8"], "boot_seconds": 3600.0})
    shrinking.manager("0:10:web", **EAGER, node_autoprovisioning=True, max_node_provision_time_seconds=2.0)
    eventually(lambda: shrinking.town.kept().backoffs, PATIENCE_SECONDS)
    eventually(lambda: shrinking.town.kept().replacing is None and not created(shrinking), PATIENCE_SECONDS)
    assert set(shrinking.nodes) == before
    assert not shrinking.made_again


def test_a_bad_schedule_is_refused_with_field_and_value(shrinking: Shrinking) -> None:
    bad = "0;schedule=0 25 * * *;duration=1h"
    with pytest.raises(HeadroomError, match=r"disruption-budgets.*0 25 \* \* \*.*'25' is no hour from 0 to 23"):
        shrinking.manager("0:10:web", disruption_budgets=(bad,))
