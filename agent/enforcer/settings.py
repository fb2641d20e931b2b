"""The enforcer's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from shared.settings import CgroupParent, CgroupRoot, LogFormat, LogLevel


class EnforcerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent supplies the bounds; the settings hold locations, and how Batch ranks against Mid."""

    orders_dir: Annotated[
        str,
        Meta(
            min_length=1,
            description="Directory from which the enforcer reads what the agent reports about the requests of "
            "Mid and Batch pods.",
        ),
    ] = "/run/headroom/orders"
    status_dir: Annotated[
        str,
        Meta(
            description="Directory in which the enforcer reports to the agent what it wrote. If empty, it "
            "reports nothing."
        ),
    ] = ""
    cgroup_root: CgroupRoot = "/sys/fs/cgroup"
    cgroup_parent: CgroupParent = ""
    batch_weight_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Percentage of a Batch pod's CPU request that counts for its CPU weight. Mid pods "
            "count with 100 %.",
        ),
    ] = 25
    batch_idle: Annotated[
        bool, Meta(description="Run Batch pods only when no other pod wants the CPU. Needs a kernel with cpu.idle.")
    ] = True
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
