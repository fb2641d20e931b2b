"""A group's AWS options in the node groups file, which are Escalator's."""

from collections.abc import Iterator

from manager.autoscaler.cloudprovider.plugin import ProviderGroupOptions
from shared import durations

LIFECYCLES = ("", "on-demand", "spot")
DEFAULT_FLEET_READY_SECONDS = 60.0


class AwsOptions(ProviderGroupOptions, frozen=True, kw_only=True):
    """Without a launch template there is no fleet."""

    launch_template_id: str = ""
    launch_template_version: str = ""
    fleet_instance_ready_timeout: str = ""
    lifecycle: str = ""
    instance_type_overrides: tuple[str, ...] = ()
    resource_tagging: bool = False

    @property
    def fleet_ready_seconds(self) -> float:
        """How long instances of a fleet may take to run. An invalid duration counts as 0, as in Escalator."""
        text = self.fleet_instance_ready_timeout
        if not text:
            return DEFAULT_FLEET_READY_SECONDS
        try:
            return durations.parse(text)
        except ValueError:
            return 0.0

    def problems(self, *, as_escalator: bool) -> Iterator[str]:
        if self.lifecycle not in LIFECYCLES:
            yield "aws.lifecycle must be 'on-demand' or 'spot' if provided."
        if self.fleet_ready_seconds <= 0 and not as_escalator:
            yield "aws.fleet_instance_ready_timeout failed to parse into a time.Duration. check your formatting."
