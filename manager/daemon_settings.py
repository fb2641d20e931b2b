"""All settings of the manager's process; flags, environment and file keys follow from the names of the fields."""

import msgspec

from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.settings import ManagerSettings


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two sections in the code; files, flags and environment know no sections."""

    autoscaler: AutoscalerSettings = AutoscalerSettings()
    manager: ManagerSettings = ManagerSettings()
