"""Which instances their groups would launch otherwise now: from another launch template, or another version of it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from manager.autoscaler.cloudprovider.aws import templates
from manager.autoscaler.cloudprovider.aws.messages import Ask, Member, ScalingGroup, TemplateRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from shared.clock import Clock

logger = logging.getLogger(__name__)

STALE_SECONDS = 300.0  # after which AWS is asked again which version is the latest, or the default one


@dataclass
class DriftObserver:
    """Remembers, by template, which version a name such as $Latest stood for, and when AWS said so."""

    ask: Ask
    clock: Clock
    _versions: dict[TemplateRef, tuple[float, str]] = field(default_factory=dict)
    _told: bool = False

    def drifts(self, found: Mapping[str, ScalingGroup]) -> dict[str, str]:
        """By instance, how it differs. An instance of which AWS does not say what launched it has not drifted, and
        neither has one whose group's version cannot be found out.
        """
        return {
            each.instance_id: why
            for name, group in found.items()
            if group.instances and (wanted := self._wanted(name, group))
            for each in group.instances
            if (why := drift_of(each, wanted))
        }

    def _wanted(self, name: str, group: ScalingGroup) -> list[TemplateRef]:
        """All templates that the group launches from, with numbers for versions; none if one is not known."""
        refs = group.templates
        known = [msgspec.structs.replace(each, version=self._version(name, each)) for each in refs]
        return known if all(each.version for each in known) else []

    def _version(self, group: str, ref: TemplateRef) -> str:
        """Its number; empty if it cannot be found out."""
        if ref.version.isdecimal():
            return ref.version
        now = self.clock.now()
        since, version = self._versions.get(ref, (0.0, ""))
        if since <= now < since + STALE_SECONDS:
            return version
        try:
            found = templates.launch_template(self.ask, group, ref)
            version = "" if found is None else str(found.version_number)
        except ProviderError as error:
            if not self._told:
                logger.warning("drifted instances cannot be determined: %s", error, extra={"group": group})
            self._told = True
        self._versions[ref] = now, version
        return version


def drift_of(member: Member, wanted: Iterable[TemplateRef]) -> str:
    """How an instance differs from what these launch; empty if it does not."""
    refs = list(wanted)
    own = member.launch_template
    if own is None:
        name = member.launch_configuration_name
        return name and f"launch configuration {name} launched it, but its group uses a launch template now"
    same = [each for each in refs if _is_same(own, each)]
    if not same:
        return f"launch template {_name(own)} launched it, but its group uses {', '.join(map(_name, refs))} now"
    if not own.version.isdecimal() or any(each.version == own.version for each in same):
        return ""
    launched = f"version {own.version} of launch template {_name(own)} launched it"
    return f"{launched}, but its group uses version {same[0].version}"


def _is_same(one: TemplateRef, other: TemplateRef) -> bool:
    if one.launch_template_id and other.launch_template_id:
        return one.launch_template_id == other.launch_template_id
    return one.launch_template_name == other.launch_template_name


def _name(ref: TemplateRef) -> str:
    return ref.launch_template_name or ref.launch_template_id
