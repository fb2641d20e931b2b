"""Between us and a cloud that lies, hangs, fails half-way, or has groups that are not ours."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.checks import MOST_NODES
from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    Created,
    Group,
    GroupOptions,
    GroupSpec,
    Instance,
    InstanceState,
    NodeRef,
    NoticeKind,
)
from manager.autoscaler.cloudprovider.errors import (
    InvalidAnswer,
    Later,
    NoAnswer,
    ProviderError,
    Refused,
    Unavailable,
    Unsupported,
    api_error,
)
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership, SizeBounds, parse_nodes
from manager.autoscaler.pricing.model import Machine, NotOffered, PricingModel, Unpriced
from manager.autoscaler.pricing.price_file import FilePricing
from shared.api.core import Node, NodeStatus
from shared.errors import HeadroomError, InvalidInput
from shared.kube.errors import Forbidden, ServerError, TooManyRequests, Unreachable
from shared.quantity import Amounts
from tests.support.observing import observed
from tests.unit.manager.clouds import MemoryCloud

WEB = Group("web", 0, 10, 2)
OURS = Ownership({"web": None})
NEW = f"{DEFAULT_PREFIX}-new"
SPEC = GroupSpec("m", DEFAULT_PREFIX)


def ref(provider_id: str) -> NodeRef:
    return NodeRef(f"node of {provider_id}", provider_id)


def running(*ids: str) -> list[Instance]:
    return [Instance(each) for each in ids]


def two_nodes() -> MemoryCloud:
    cloud = MemoryCloud(WEB)
    cloud.members["web"] = running("a", "b")
    return cloud


def observed_by(cloud: MemoryCloud, ownership: Ownership = OURS) -> Guard:
    guard = Guard(cloud, ownership)
    guard.observe()
    return guard


@pytest.mark.parametrize(
    ("groups", "members", "field"),
    [
        ([replace(WEB, target_size=-1)], {}, "target_size"),
        ([replace(WEB, max_size=10**6, target_size=10**6)], {}, "target_size"),
        ([WEB], {"web": running(*map(str, range(20_001)))}, "instances"),
        ([replace(WEB, min_size=-1)], {}, "min_size"),
        ([replace(WEB, max_size=-1)], {}, "max_size"),
        ([replace(WEB, min_size=11)], {}, "min_size"),
        ([WEB, WEB], {}, "id"),
        ([replace(WEB, target_size=11)], {"web": running("a")}, "target_size"),
        ([WEB], {"web": running("a", "a")}, "instances[1].provider_id"),
        ([WEB], {"web": running("")}, "instances[0].provider_id"),
    ],
)
def test_a_lie_costs_the_group_it_is_about(groups: list[Group], members: Any, field: str) -> None:
    other = Group("other", 0, 5, 1)
    cloud = MemoryCloud(*groups, other)
    cloud.members |= {**members, "other": running("z")}
    guard = observed_by(cloud, Ownership({"web": None, "other": None}))
    assert guard.observed.groups.keys() == {"other"}
    error = guard.observed.refused["web"]
    assert isinstance(error, InvalidAnswer)
    assert (error.provider, error.group, error.field) == ("memory", "web", field)
    assert "memory: group web: " in str(error)
    with pytest.raises(Refused, match="rejected"):
        guard.increase("web", 1)
    assert cloud.written == []
    guard.increase("other", 1)


def test_an_instance_in_two_groups_costs_both() -> None:
    cloud = MemoryCloud(WEB, replace(WEB, id="other"))
    cloud.members = {"web": running("a"), "other": running("b", "a")}
    guard = observed_by(cloud, Ownership({"web": None, "other": None}))
    assert guard.observed.refused.keys() == {"web", "other"}


def test_a_target_above_a_lowered_maximum_is_believed_for_the_instances_that_are_there() -> None:
    cloud = MemoryCloud(replace(WEB, max_size=2, target_size=3))
    cloud.members["web"] = running("a", "b", "c")
    guard = observed_by(cloud)
    assert guard.observed.groups["web"].group.target_size == 3
    with pytest.raises(Refused, match="above the maximum of 2"):
        guard.increase("web", 1)


def test_a_group_without_a_name_costs_the_round() -> None:
    with pytest.raises(InvalidAnswer, match=r"groups\.id"):
        observed_by(MemoryCloud(WEB, Group("", 0, 1, 0)))


def test_a_listed_group_that_is_not_there_is_said() -> None:
    guard = observed_by(MemoryCloud(WEB), Ownership({"web": None, "gone": None}))
    assert "not in the cloud" in str(guard.observed.refused["gone"])


def test_an_unknown_group_of_a_node_is_said_and_changes_nothing() -> None:
    cloud = MemoryCloud(WEB)
    cloud.given_groups_of_nodes = {"n": "ghost"}
    found = Guard(cloud, OURS).observe([NodeRef("n", "id")])
    assert found.groups.keys() == {"web"}
    assert found.group_of_node == {}
    assert "the group does not exist" in str(found.refused["ghost"])


@pytest.mark.parametrize(
    "options",
    [
        GroupOptions(scale_down_utilization_threshold=1.5),
        GroupOptions(scale_down_unneeded_time_seconds=-1),
        GroupOptions(max_node_provision_time_seconds=0),
        GroupOptions(max_node_provision_time_seconds=float("nan")),
    ],
)
def test_options_that_cannot_be_cost_the_group(options: GroupOptions) -> None:
    cloud = MemoryCloud(WEB)
    cloud.given_options = options
    assert "options." in str(observed_by(cloud).observed.refused["web"])


@pytest.mark.parametrize(
    ("bounds", "most", "is_refused"),
    [
        (None, MOST_NODES, False),
        (None, MOST_NODES + 1, True),
        (SizeBounds(0, MOST_NODES), MOST_NODES + 1, False),
        (SizeBounds(0, MOST_NODES + 1), 9, True),
    ],
)
def test_a_group_of_more_nodes_than_any_cloud_has_does_not_get_all_of_them_at_once(
    bounds: SizeBounds | None, most: int, is_refused: bool
) -> None:
    for atomic in (True, False):
        cloud = MemoryCloud(replace(WEB, max_size=most))
        cloud.given_options = GroupOptions(zero_or_max_node_scaling=atomic)
        refused = observed_by(cloud, Ownership({"web": bounds})).observed.refused
        assert ("max_size" in str(refused.get("web"))) == (atomic and is_refused)


@pytest.mark.parametrize(
    ("status", "field"),
    [
        (NodeStatus(), "template.capacity[cpu]"),
        (NodeStatus(capacity={"cpu": "1", "memory": "1Gi"}, allocatable={"cpu": "1"}), "template.allocatable[memory]"),
        (NodeStatus(capacity={"cpu": "much", "memory": "1Gi"}), "template.capacity[cpu]"),
        (NodeStatus(capacity={"cpu": "1", "memory": "1", "gpu": "-1"}), "template.capacity[gpu]"),
    ],
)
def test_a_template_that_cannot_be_is_refused_by_field(status: NodeStatus, field: str) -> None:
    cloud = MemoryCloud(WEB)
    cloud.given_template = Node(status=status)
    with pytest.raises(InvalidAnswer) as caught:
        observed_by(cloud).template("web")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("main", "problem"),
    [
        (Group("elsewhere", 0, 1, 0, autoprovisioned=True), "must begin with"),
        (Group(f"{DEFAULT_PREFIX}-old", 0, 1, 0, autoprovisioned=True), "must not exist already"),
        (Group(NEW, 0, 1, 1, autoprovisioned=True), "must be empty"),
        (Group(NEW, 0, 1, 0), "autoprovisioned"),
        (Group(NEW, 2, 1, 0, autoprovisioned=True), "above max_size"),
    ],
)
def test_a_created_group_that_is_not_as_agreed_is_refused(main: Group, problem: str) -> None:
    cloud = MemoryCloud(Group(f"{DEFAULT_PREFIX}-old", 0, 1, 0, autoprovisioned=True))
    guard = observed_by(cloud, Ownership())
    cloud.given_created = Created(main)
    with pytest.raises(InvalidAnswer, match=problem):
        guard.create_group(SPEC)
    assert NEW not in guard.observed.groups


def test_a_created_group_is_ours_at_once_and_can_be_deleted_when_it_is_empty() -> None:
    cloud = MemoryCloud()
    guard = observed_by(cloud, Ownership())
    assert guard.create_group(SPEC).main.id == NEW
    guard.increase(NEW, 1)
    with pytest.raises(Refused, match="not empty"):
        guard.delete_group(NEW)
    guard.observe()
    guard.delete_nodes(NEW, [ref(each.provider_id) for each in cloud.members[NEW]])
    guard.observe()
    guard.delete_group(NEW)
    assert NEW not in guard.observed.groups
    assert cloud.listed == []


def test_a_group_that_we_did_not_make_is_not_deleted() -> None:
    cloud = MemoryCloud(replace(WEB, target_size=0))
    with pytest.raises(Refused, match="not created by auto-provisioning"):
        observed_by(cloud).delete_group("web")


def test_without_a_prefix_no_group_is_made() -> None:
    cloud = MemoryCloud()
    for prefix in ("", "other"):
        with pytest.raises(Refused, match="would not be managed"):
            observed_by(cloud, Ownership(prefix=prefix)).create_group(SPEC)
    assert cloud.listed == []


def test_sizes_stay_within_the_bounds_and_no_instance_is_dropped() -> None:
    cloud = two_nodes()
    guard = observed_by(cloud, Ownership({"web": SizeBounds(2, 3)}))
    attempts: list[Callable[[], None]] = [
        lambda: guard.increase("web", 0),
        lambda: guard.increase("web", 2),
        lambda: guard.decrease_target("web", 1),
        lambda: guard.decrease_target("web", -1),
        lambda: guard.delete_nodes("web", [ref("a")]),
        lambda: guard.delete_nodes("web", []),
        lambda: guard.delete_nodes("web", [ref("a"), ref("a")]),
        lambda: guard.delete_nodes("web", [ref("stranger")], below_min=True),
    ]
    for attempt in attempts:
        with pytest.raises(Refused):
            attempt()
    assert cloud.written == []
    guard.delete_nodes("web", [ref("a")], below_min=True)
    assert [each.state for each in guard.observed.groups["web"].instances] == [
        InstanceState.DELETING,
        InstanceState.RUNNING,
    ]
    with pytest.raises(Refused, match="already"):
        guard.delete_nodes("web", [ref("a")], below_min=True)


def test_a_cloud_that_hangs_costs_one_deadline_and_is_asked_again_when_it_is_back() -> None:
    cloud = two_nodes()
    guard = Guard(cloud, OURS, deadline_seconds=0.2)
    observed(guard)
    cloud.hang = threading.Event()
    with pytest.raises(Unavailable, match=r"no answer within 0.2 s"):
        guard.observe()
    with pytest.raises(Unavailable, match="not called, because observe has not ended"):
        guard.observe()
    with pytest.raises(Unavailable, match="not observed"):
        guard.increase("web", 1)
    cloud.hang.set()
    observed(guard)
    assert cloud.written == []


@pytest.mark.parametrize(
    ("error", "doubts"),
    [
        (Refused("memory", "web", "no"), False),
        (Later("memory", "web", "too often"), False),
        (Unavailable("memory", "web", "lost"), True),
        (InvalidAnswer("memory", "web", "size", -1, "no size"), True),
    ],
)
def test_a_group_is_in_doubt_where_something_may_have_been_done(error: ProviderError, doubts: bool) -> None:
    cloud = two_nodes()
    guard = observed_by(cloud)
    cloud.fail(error)
    writes: list[Callable[[], None]] = [
        lambda: guard.increase("web", 1),
        lambda: guard.delete_nodes("web", [ref("a")], below_min=True),
    ]
    for write in writes:
        with pytest.raises(type(error)):
            write()
        assert guard.is_in_doubt("web") is doubts
        guard.observe_again()
    with pytest.raises(type(error)):
        guard.delete_nodes("web", [ref("a"), ref("b")], below_min=True)
    assert guard.is_in_doubt("web"), "one of the two may be gone"


@pytest.mark.parametrize(
    ("error", "has_begun", "kind"),
    [
        (Forbidden(403, "Forbidden", "no"), False, Refused),
        (Forbidden(403, "Forbidden", "no"), True, Unavailable),
        (ServerError(500, "InternalError", "no"), False, Unavailable),
        (TooManyRequests(429, "TooManyRequests", "no"), False, Unavailable),
        (Unreachable("nobody there"), False, Unavailable),
    ],
)
def test_a_write_to_an_api_server_is_in_doubt_unless_all_of_it_was_refused(
    error: HeadroomError, has_begun: bool, kind: type[ProviderError]
) -> None:
    assert type(api_error("memory", "web", error, "not done", has_begun=has_begun)) is kind


def test_a_second_look_that_fails_leaves_all_as_it_was_known_and_in_doubt() -> None:
    cloud = two_nodes()
    guard = observed_by(cloud)
    known = guard.observed
    cloud.fail(Unavailable("memory", "web", "lost"))
    with pytest.raises(Unavailable, match="lost"):
        guard.increase("web", 1)
    cloud.outage = NoAnswer("memory", "", "nobody there")
    with pytest.raises(NoAnswer, match="nobody there"):
        guard.observe_again()
    assert guard.observed is known
    with pytest.raises(Later, match="observed again first"):
        guard.increase("web", 1)


def test_what_a_second_look_notices_is_told_by_the_next_first_one_and_of_managed_groups_alone() -> None:
    cloud = two_nodes()
    guard = observed_by(cloud)
    mine, others = (CloudNotice(NoticeKind.DELETED_BY_OTHERS, each, 1, "it goes") for each in ("web", "others"))
    cloud.noticed = [mine, others]
    guard.observe_again()
    assert guard.observe().notices == (mine,)
    assert guard.observe().notices == ()


def test_what_joins_keeps_no_place_for_who_is_to_go() -> None:
    cloud = MemoryCloud(Group("web", 2, 9, 5, joining=3))
    cloud.members["web"] = running("a", "b")
    with pytest.raises(Refused, match="2 - 1 is below the minimum of 2"):
        observed_by(cloud).delete_nodes("web", [ref("a")])
    assert cloud.written == []


def test_a_provider_that_breaks_down_is_unavailable() -> None:
    cloud = two_nodes()
    guard = observed_by(cloud)
    cloud.trouble = lambda: [][0]
    with pytest.raises(Unavailable, match=r"memory: group web: increase: IndexError"):
        guard.increase("web", 1)


class Countable(FilePricing):
    """Asked for a price it does what a test wants."""

    def __init__(self, *errors: ProviderError) -> None:
        super().__init__()
        self.asked = 0
        self._errors = list(errors)

    def fails_with(self, error: ProviderError) -> None:
        self._errors.append(error)

    def node_price(self, machine: Machine) -> float:
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)
        return 1.0


def priced_by(model: PricingModel) -> tuple[Guard, PricingModel]:
    cloud = MemoryCloud(WEB)
    cloud.model = model
    guard = observed_by(cloud)
    prices = guard.pricing()
    assert prices is not None
    return guard, prices


@pytest.mark.parametrize(
    ("error", "asks_on"),
    [
        (Unavailable("memory", "", "it broke down"), True),
        (Refused("memory", "", "no such type"), True),
        (NoAnswer("memory", "", "nobody there"), False),
        (Later("memory", "", "too often"), False),
    ],
)
def test_a_price_that_fails_is_asked_for_once_a_round_and_others_only_of_a_cloud_that_answers(
    error: ProviderError, asks_on: bool
) -> None:
    model = Countable(error)
    guard, prices = priced_by(model)
    for _ in range(3):
        with pytest.raises(Unpriced, match=error.problem):
            prices.node_price(Machine({"cpu": 1}))
    with contextlib.nullcontext() if asks_on else pytest.raises(Unpriced, match=error.problem):
        assert prices.node_price(Machine({"cpu": 2})) == 1.0
    assert model.asked == (2 if asks_on else 1)
    guard.observe()
    assert prices.node_price(Machine({"cpu": 1})) == 1.0


def test_a_cloud_has_prices_of_machines_or_none_until_it_is_asked_again() -> None:
    error = Unsupported("memory", "", "no prices")
    model = Countable(error)
    guard, prices = priced_by(model)
    for cores in (1, 1, 2):
        with pytest.raises(NotOffered, match="no prices"):
            prices.node_price(Machine({"cpu": cores}))
    assert (model.asked, prices.pod_price({"cpu": 1000})) == (1, FilePricing().pod_price({"cpu": 1000}))
    guard.observe()
    assert prices.node_price(Machine({"cpu": 1})) == 1.0
    model.fails_with(error)
    with pytest.raises(Unpriced) as raised:
        prices.node_price(Machine({"cpu": 2}))
    assert not isinstance(raised.value, NotOffered)


def test_options_that_fail_are_those_of_before_told_once_and_cost_the_round_where_nobody_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unhelpful(MemoryCloud):
        trouble_of_options: ProviderError | None = None

        def options(self, group: str) -> GroupOptions:
            if self.trouble_of_options is not None:
                raise self.trouble_of_options
            return super().options(group)

    cloud = Unhelpful(WEB)
    cloud.given_options = before = GroupOptions(zero_or_max_node_scaling=True)
    guard = observed_by(cloud)
    cloud.trouble_of_options = Unavailable("memory", "web", "options: UNKNOWN: not implemented")
    assert [guard.observe().groups["web"].options for _ in range(2)] == [before] * 2
    assert [each for each in caplog.messages if "no options of group web" in each] == [caplog.messages[0]]
    cloud.trouble_of_options = NoAnswer("memory", "web", "options: DEADLINE_EXCEEDED")
    with pytest.raises(NoAnswer):
        guard.observe()


def test_only_whoever_has_acted_has_the_cloud_clean_up() -> None:
    cloud = two_nodes()
    observed_by(cloud).close()
    assert cloud.ended == ["close"]
    observed_by(cloud).close(cleanup=True)
    assert cloud.ended == ["close", "cleanup", "close"]


def test_prices_that_are_none_leave_things_unpriced() -> None:
    class Odd(FilePricing):
        def pod_price(self, requests: Amounts) -> float:
            return float(requests.get("price", 0)) or float("nan")

    assert observed_by(MemoryCloud(WEB)).pricing() is None
    _, model = priced_by(Odd())
    assert model.pod_price({"price": 2}) == 2
    for requests in ({}, {"price": -1}):
        with pytest.raises(Unpriced, match="is not a price"):
            model.pod_price(requests)


@pytest.mark.parametrize(
    ("text", "group", "bounds"),
    [
        ("0:5:web", "web", SizeBounds(0, 5)),
        ("3:3:Kind/ns/name", "Kind/ns/name", SizeBounds(3, 3)),
        ("1:2:arn:aws:web", "arn:aws:web", SizeBounds(1, 2)),
    ],
)
def test_nodes_flags_are_read(text: str, group: str, bounds: SizeBounds) -> None:
    assert parse_nodes([text]) == {group: bounds}


@pytest.mark.parametrize(
    "texts", [[""], ["web"], ["1:2"], ["1:2:"], ["a:2:web"], ["-1:2:web"], ["3:2:web"], ["1:²:web"], ["0:1:a", "0:2:a"]]
)
def test_nodes_flags_that_mean_nothing_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidInput, match=rf"--nodes: nodes\[{len(texts) - 1}\]"):
        parse_nodes(texts)


@pytest.mark.parametrize(
    ("group", "is_ours"),
    [
        ("web", True),
        ("web2", False),
        (f"{DEFAULT_PREFIX}-n1", True),
        (f"MachineDeployment/default/{DEFAULT_PREFIX}-n1", True),
        (f"{DEFAULT_PREFIX}/main", False),
        (f"my-{DEFAULT_PREFIX}", False),
    ],
)
def test_a_group_is_ours_by_list_or_by_the_prefix_of_its_name(group: str, is_ours: bool) -> None:
    assert OURS.owns(group) is is_ours
    guard = observed_by(MemoryCloud(WEB, Group(group, 0, 5, 1)) if group != "web" else MemoryCloud(WEB))
    assert (group in guard.observed.groups, group in guard.observed.unmanaged) == (is_ours, not is_ours)
    with contextlib.nullcontext() if is_ours else pytest.raises(Refused, match="Headroom does not manage it"):
        guard.increase(group, 1)
    assert not Ownership(prefix="").owns(group)


OLD = f"{DEFAULT_PREFIX}-old"
IDS = ["web", "main", "other", OLD, "a/b"]
writes = st.lists(
    st.tuples(
        st.sampled_from(["increase", "decrease", "delete", "delete group", "create", "observe"]),
        st.sampled_from(IDS),
        st.integers(-2, 4),
        st.sampled_from([None, "before", "after"]),
    ),
    max_size=12,
)


@given(st.sets(st.sampled_from(IDS)), st.sets(st.sampled_from(IDS)), st.integers(0, 3), writes)
def test_whatever_is_asked_groups_of_others_stay_and_books_agree(
    there: set[str], listed: set[str], size: int, asked: Sequence[tuple[str, str, int, str | None]]
) -> None:
    cloud = MemoryCloud(*(Group(each, 0, 5, size, autoprovisioned=each == OLD) for each in sorted(there)))
    for each in there:
        cloud.members[each] = running(*(f"{each}/{number}" for number in range(size)))
    before = {group.id: group for group in cloud.listed}
    ownership = Ownership(dict.fromkeys(listed))
    guard = observed_by(cloud, ownership)
    for what, group, amount, failure in asked:
        cloud.fail(Unavailable("memory", group, "lost") if failure else None, too_late=failure == "after")
        nodes = [ref(each.provider_id) for each in cloud.members.get(group, [])[: max(0, amount)]]
        with contextlib.suppress(ProviderError):
            match what:
                case "increase":
                    guard.increase(group, amount)
                case "decrease":
                    guard.decrease_target(group, amount)
                case "delete":
                    guard.delete_nodes(group, nodes)
                case "delete group":
                    guard.delete_group(group)
                case "create":
                    guard.create_group(SPEC)
                case _:
                    guard.observe()
    unmanaged = {group.id: group for group in cloud.listed if not ownership.owns(group.id)}
    assert unmanaged == {name: group for name, group in before.items() if not ownership.owns(name)}
    assert all(ownership.owns(group) for group in cloud.written)
    if any(failure for *_, failure in asked):
        guard.observe()  # until then, what became of a lost write is not known
    assert guard.observed.groups.keys() == {group.id for group in cloud.listed if ownership.owns(group.id)}
    for name, seen in guard.observed.groups.items():
        assert seen.group.target_size == cloud.target(name) <= seen.group.max_size
