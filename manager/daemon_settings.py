"""All settings of the manager's process; flags, environment and file keys follow from the names of the fields."""

from typing import ClassVar

import msgspec

from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.settings import ManagerSettings
from shared import examples


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two sections in the code; files, flags and environment know no sections."""

    EXAMPLES: ClassVar[str] = examples.text(
        ("Compute the offers of a cluster, and write nothing", "headroom manager --dry-run --leader-elect false"),
        (
            "Offer Mid only, and serve the page on another port",
            "headroom manager --offers mid --listen 127.0.0.1:9000",
        ),
    )

    autoscaler: AutoscalerSettings = AutoscalerSettings()
    manager: ManagerSettings = ManagerSettings()
