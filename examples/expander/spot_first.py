"""Buys spot machines while a group of them helps, and others when none does."""

from collections.abc import Sequence

from headroom_api.expanders import AutoscalerSettings, Expander, ExpanderContext, Option

SPOT_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
}


class SpotFirst(Expander):
    """The options whose nodes are spot machines; all options if there is none."""

    def __init__(self, settings: AutoscalerSettings) -> None:
        """An expander with options of its own reads them here, from a file or the environment."""

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> Sequence[Option]:
        return [each for each in options if is_spot(each)] or options


def is_spot(option: Option) -> bool:
    """Whether a new node of the group bears one of the clouds' labels of spot machines."""
    return any(option.machine.labels.get(label) == value for label, value in SPOT_LABELS.items())
