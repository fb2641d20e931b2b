"""The only way to write to a cloud: with deadlines and checked answers, and never to an unmanaged group.

One iteration is `observe`, whose result is plain data for all decisions, followed by the writes. After a write with an
unknown result, its group gets no further write before it has been observed again.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from manager.autoscaler.cloudprovider import checks
from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    Created,
    Group,
    GroupOptions,
    GroupSpec,
    Instance,
    InstanceState,
    NodeRef,
    Provider,
)
from manager.autoscaler.cloudprovider.deadline import Caller
from manager.autoscaler.cloudprovider.errors import (
    InvalidAnswer,
    Later,
    NoAnswer,
    ProviderError,
    Refused,
    Unsupported,
)
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cloudprovider.reader import CloudReader

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_SECONDS = 30.0
NEW_GROUPS = ""  # in place of a group's id, before a group has one


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """A managed group, with our bounds."""

    group: Group
    instances: tuple[Instance, ...] = ()
    options: GroupOptions = field(default_factory=GroupOptions)


@dataclass(frozen=True, slots=True)
class CloudObservation:
    """A cloud's answers in one iteration.

    `refused` are managed groups that cannot be judged, each with the reason, and unknown groups that the cloud named;
    `unmanaged` are not ours. `group_of_node` maps Nodes, by name, to their group in `groups`. `notices` are about
    managed groups, each in one observation. `strays` are instances that never become nodes, also of unknown groups.
    """

    groups: Mapping[str, ObservedGroup] = field(default_factory=dict)
    refused: Mapping[str, ProviderError] = field(default_factory=dict)
    unmanaged: frozenset[str] = frozenset()
    group_of_node: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[CloudNotice, ...] = ()
    strays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def member(self, group: str, node: NodeRef) -> InstanceState | None:
        """The state of the node's machine in this group; None if it is not in it, whatever its labels say."""
        found = () if group not in self.groups else self.groups[group].instances
        states = (each.state for each in found if each.provider_id == node.provider_id)
        by_node = InstanceState.UNKNOWN if self.group_of_node.get(node.name) == group else None
        return next(states, by_node)


class CloudObserver:
    """Observes one provider. Each error is logged when it is new."""

    def __init__(self, provider: Provider, ownership: Ownership) -> None:
        self._provider = provider
        self._ownership = ownership
        self._told: Mapping[str, str] = {}  # refusals by group, as they were logged
        self._passed_by: Mapping[str, str] = {}  # other errors, by the call, as they were logged
        self._options_of: dict[str, GroupOptions] = {}  # the last answers

    def observe(self, nodes: Sequence[NodeRef]) -> CloudObservation:
        """All managed groups, their instances and options, and the group of each node. Raises ProviderError."""
        self._provider.refresh()
        sized = [self._sized(group) for group in self._provider.groups()]
        listed = [group for group, _ in sized]
        refused = {group.id: error for group, error in sized if error is not None}
        impossible = checks.listing(self._provider.name, listed)
        refused |= {group: error for group, error in impossible.items() if self._ownership.owns(group)}
        own = {group.id: group for group in listed if self._ownership.owns(group.id) and group.id not in refused}
        missing = self._ownership.listed.keys() - {group.id for group in listed}
        refused |= {
            group: Refused(self._provider.name, group, "the node group exists in the registry but not in the cloud")
            for group in missing
        }
        unknown = self._provider.unknown_groups()
        refused |= {group: Refused(self._provider.name, group, what) for group, what in unknown.items()}
        passed_by: dict[str, ProviderError] = {}
        instances: dict[str, tuple[Instance, ...]] = {}
        options: dict[str, GroupOptions] = {}
        for group in own:
            try:
                instances[group] = tuple(self._provider.instances(group))
                options[group], problem = self._options(group)
                if problem is not None:
                    passed_by[f"options of group {group}"] = problem
                checks.atomic(self._provider.name, self._ownership.bounded(own[group]), options[group])
            except (InvalidAnswer, Refused) as error:
                refused[group] = error
        refused |= checks.membership(self._provider.name, own, instances)
        groups = {
            name: ObservedGroup(self._ownership.bounded(group), instances[name], options[name])
            for name, group in own.items()
            if name not in refused
        }
        unmanaged = frozenset(group.id for group in listed if not self._ownership.owns(group.id))
        placed, unplaced = self._placed(nodes, groups)
        of_node = {name: group for name, group in placed.items() if group in groups}
        for name, group in placed.items():
            if group not in groups and group not in unmanaged and group not in refused:
                what = f"group of node {name}"
                refused[group] = InvalidAnswer(self._provider.name, group, what, group, "the group does not exist")
        self._log({what: str(error) for what, error in (passed_by | unplaced).items()}, refused)
        notices = tuple(each for each in self._provider.notices() if each.group in groups or each.group in refused)
        given_up = self._provider.strays().items()
        strays = {group: tuple(ids) for group, ids in given_up if ids and (group in unknown or group in groups)}
        return CloudObservation(groups, refused, unmanaged, of_node, notices, strays)

    def _sized(self, group: Group) -> tuple[Group, ProviderError | None]:
        """The group with its target, if it is ours: an unmanaged group may be unreadable. Or why it is refused."""
        if not self._ownership.owns(group.id):
            return group, None
        try:
            return dataclasses.replace(group, target_size=self._provider.target_size(group)), None
        except (InvalidAnswer, Refused) as error:
            return group, error

    def _options(self, group: str) -> tuple[GroupOptions, ProviderError | None]:
        """The group's options. After an error, which is returned, too, the last answer stays: options are optional."""
        try:
            found = self._provider.options(group)
        except Unsupported:
            return GroupOptions(), None
        except (InvalidAnswer, NoAnswer):
            raise
        except ProviderError as error:
            return self._options_of.get(group, GroupOptions()), error
        checks.options(self._provider.name, group, found)
        self._options_of[group] = found
        return found, None

    def _placed(
        self, nodes: Sequence[NodeRef], groups: Mapping[str, ObservedGroup]
    ) -> tuple[dict[str, str], dict[str, ProviderError]]:
        """The group of each node, by the instances; the cloud is asked about the others, and may name a group that is
        not there. Errors are returned by what they are about.

        A node that the cloud does not know belongs to no group, as machines of other clouds do.
        """
        by_id = {each.provider_id: name for name, group in groups.items() for each in group.instances}
        placed: dict[str, str] = {}
        errors: dict[str, ProviderError] = {}
        asks = True
        for node in nodes:
            group = by_id.get(node.provider_id)
            if group is None and asks and node.provider_id:
                try:
                    group = self._provider.group_of(node)
                except Unsupported:
                    asks = False
                except NoAnswer:
                    raise
                except ProviderError as error:
                    errors[f"group of node {node.name}"] = error
            if group is not None:
                placed[node.name] = group
        return placed, errors

    def _log(self, errors: Mapping[str, str], refused: Mapping[str, ProviderError]) -> None:
        """Logs what is new."""
        for what in (each for each in errors if self._passed_by.get(each) != errors[each]):
            logger.warning("no %s: %s", what, errors[what], extra={"provider": self._provider.name})
        self._passed_by = errors
        reasons = {group: str(error) for group, error in refused.items()}
        for group in reasons.keys() - {group for group, why in self._told.items() if reasons.get(group) == why}:
            logger.warning("group refused: %s", reasons[group], extra={"provider": self._provider.name, "group": group})
        self._told = reasons


class Guard(CloudReader):
    """Calls one provider for one thread; any thread may read `observed`. Every call raises ProviderError."""

    def __init__(self, provider: Provider, ownership: Ownership, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        super().__init__(provider, Caller(provider.name, deadline_seconds))
        self._ownership = ownership
        self._observer = CloudObserver(provider, ownership)
        self._observed: CloudObservation | None = None
        self._nodes: Sequence[NodeRef] = ()
        self._in_doubt: dict[str, ProviderError] = {}
        self._untold: tuple[CloudNotice, ...] = ()  # of observations that no iteration has begun with

    @property
    def observed(self) -> CloudObservation:
        """The last observation, with the writes since; it stays during a new observation.

        Raises Later before the first observation, and after a failed one.
        """
        observed = self._observed  # read once: another thread may be observing
        if observed is None:
            raise Later(self.name, "", "not observed")
        return observed

    def observe(self, nodes: Sequence[NodeRef] = ()) -> CloudObservation:
        """Starts an iteration: all managed groups, their instances and options, and the group of each Node.

        An implausible answer excludes its group; a missing answer fails the whole observation, because upcoming nodes
        of one group decide about all others.
        """
        self._nodes = nodes
        self.forget()
        try:
            found = self._caller.call("observe", lambda: self._observer.observe(nodes))
        except ProviderError:
            self._observed = None
            raise
        self._observed = dataclasses.replace(found, notices=(*self._untold, *found.notices))
        self._untold = ()
        self._in_doubt.clear()
        return self._observed

    def observe_again(self) -> CloudObservation:
        """Observes again within an iteration, after a failed write.

        If this fails, too, the old observation stays, and the doubt.
        """
        before = self._observed
        try:
            found = self.observe(self._nodes)
        except ProviderError:
            self._observed = before
            raise
        self._untold = found.notices
        return found

    def launched_at(self, node: NodeRef) -> float | None:
        """When the node's machine was launched, in Unix seconds; None if the machine no longer exists."""
        return self._caller.call("launch time", lambda: self._provider.launched_at(node))

    def increase(self, group: str, delta: int) -> None:
        """Adds `delta` > 0 nodes, within the bounds."""
        before = self._writable(group).group
        if delta <= 0:
            raise Refused(self.name, group, f"an increase must be positive: {delta}")
        if before.target_size + delta > before.max_size:
            raise Refused(self.name, group, f"{before.target_size} + {delta} is above the maximum of {before.max_size}")
        self._write("increase", group, lambda: self._provider.increase(group, delta))
        self._retarget(group, delta)

    def decrease_target(self, group: str, delta: int) -> None:
        """Takes `delta` > 0 missing nodes off the target."""
        seen = self._writable(group)
        if delta <= 0:
            raise Refused(self.name, group, f"a decrease must be positive: {delta}")
        staying = sum(each.state is not InstanceState.DELETING for each in seen.instances)
        if seen.group.target_size - delta < staying:
            raise Refused(
                self.name, group, f"{seen.group.target_size} - {delta} is below its {staying} instances, which stay"
            )
        self._write("decrease target", group, lambda: self._provider.decrease_target(group, delta))
        self._retarget(group, -delta)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef], *, below_min: bool = False) -> None:
        """Deletes exactly these nodes, which must be in the group.

        `below_min`: they never worked, so the minimum does not apply.
        """
        if below_min and group in self.observed.strays and group not in self.observed.groups:
            self._delete_strays(group, nodes)
            return
        seen = self._writable(group)
        ids = {node.provider_id for node in nodes}
        if len(ids) < len(nodes) or not nodes:
            raise Refused(self.name, group, f"{len(nodes)} nodes to delete with {len(ids)} different ids")
        for node in nodes:
            state = self.observed.member(group, node)
            if state is None:
                raise Refused(self.name, group, f"node {node.name} ({node.provider_id}) is not in it")
            if state is InstanceState.DELETING:
                raise Refused(self.name, group, f"node {node.name} ({node.provider_id}) is already being deleted")
        size = seen.group.target_size if below_min else seen.group.settled_size
        if size - len(nodes) < (0 if below_min else seen.group.min_size):
            raise Refused(self.name, group, f"{size} - {len(nodes)} is below the minimum of {seen.group.min_size}")
        several = len(nodes) > 1
        self._write("delete nodes", group, lambda: self._provider.delete_nodes(group, nodes), in_steps=several)
        leaving = tuple(
            dataclasses.replace(each, state=InstanceState.DELETING) if each.provider_id in ids else each
            for each in seen.instances
        )
        self._retarget(group, -len(nodes), leaving)

    def _delete_strays(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self._check_doubt(group)
        strays, ids = self.observed.strays, {node.provider_id for node in nodes}
        if foreign := sorted(ids.difference(strays[group])):
            raise Refused(self.name, group, f"{foreign[0]} is none of its instances without a machine")
        self._write("delete nodes", group, lambda: self._provider.delete_nodes(group, nodes), in_steps=len(ids) > 1)
        left = {**strays, group: tuple(each for each in strays[group] if each not in ids)}
        self._observed = dataclasses.replace(self.observed, strays=left)

    def is_in_doubt(self, group: str) -> bool:
        """Whether the group must be observed again before the next write."""
        return group in self._in_doubt

    def create_group(self, spec: GroupSpec) -> Created:
        """Creates an empty group with the auto-provisioning prefix, which makes it ours."""
        observed = self.observed
        if not self._ownership.prefix or spec.prefix != self._ownership.prefix:
            raise Refused(self.name, "", f"a group with the prefix {spec.prefix!r} would not be managed")
        self._check_doubt(NEW_GROUPS)
        existing = {**observed.groups, **observed.refused, **dict.fromkeys(observed.unmanaged)}

        def create() -> Created:
            made = self._provider.create_group(spec)
            checks.check_created(self.name, made, prefix=spec.prefix, existing=existing)
            return made

        found = self._write("create group", NEW_GROUPS, create)
        new = {each.id: ObservedGroup(each) for each in (found.main, *found.extras)}
        self._observed = dataclasses.replace(observed, groups={**observed.groups, **new})
        return found

    def delete_group(self, group: str) -> None:
        """Deletes an empty autoprovisioned group."""
        seen = self._writable(group)
        if not seen.group.autoprovisioned or not self._ownership.has_prefix(group):
            raise Refused(self.name, group, "not created by auto-provisioning, so it is not deleted")
        if seen.group.target_size or seen.instances:
            raise Refused(
                self.name, group, f"not empty: target {seen.group.target_size}, {len(seen.instances)} instances"
            )
        self._write("delete group", group, lambda: self._provider.delete_group(group))
        groups = {name: each for name, each in self.observed.groups.items() if name != group}
        self._observed = dataclasses.replace(self.observed, groups=groups)

    def close(self, *, cleanup: bool = False) -> None:
        """Closes the provider.

        `cleanup` is for a process that has acted alone: a cloud may undo what others still use.
        """
        ends = {"cleanup": self._provider.cleanup} if cleanup else {}
        for what, end in (ends | {"close": self._provider.close}).items():
            try:
                self._caller.call(what, end)
            except ProviderError as error:
                logger.warning("closing the provider failed: %s", error)
        self._caller.close()

    def _writable(self, group: str) -> ObservedGroup:
        if not self._ownership.owns(group):
            raise Refused(self.name, group, "neither listed nor named with the prefix, so Headroom does not manage it")
        self._check_doubt(group)
        observed = self.observed
        if group in observed.refused:
            raise Refused(self.name, group, f"rejected: {observed.refused[group].problem}")
        if group not in observed.groups:
            raise Refused(self.name, group, "not there")
        return observed.groups[group]

    def _check_doubt(self, group: str) -> None:
        if group in self._in_doubt:
            raise Later(self.name, group, f"it must be observed again first, after: {self._in_doubt[group].problem}")

    def _write(self, what: str, group: str, work: Callable[[], T], *, in_steps: bool = False) -> T:
        """`in_steps`: part of it may have taken effect before the step that failed, whatever the error says."""
        try:
            return self._caller.call(what, work, group=group)
        except ProviderError as error:
            if in_steps or error.leaves_doubt:
                self._in_doubt[group] = error
            raise

    def _retarget(self, group: str, delta: int, instances: tuple[Instance, ...] | None = None) -> None:
        before = self.observed.groups[group]
        after = ObservedGroup(
            dataclasses.replace(before.group, target_size=before.group.target_size + delta),
            before.instances if instances is None else instances,
            before.options,
        )
        self._observed = dataclasses.replace(self.observed, groups={**self.observed.groups, group: after})
