"""The enforcer's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from typing import Annotated

import msgspec
from msgspec import Meta


class EnforcerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent supplies the bounds; the settings hold locations, and how Batch ranks against Mid."""

    orders_dir: Annotated[str, Meta(min_length=1, description="where the agent says what pods hold")] = (
        "/run/headroom/orders"
    )
    status_dir: Annotated[str, Meta(description="where to say what was written, for the agent; empty: nowhere")] = ""
    cgroup_root: Annotated[str, Meta(description="where cgroups are mounted")] = "/sys/fs/cgroup"
    cgroup_parent: Annotated[str, Meta(description="path below which kubepods lives; empty: look for it")] = ""
    batch_weight_percent: Annotated[
        int, Meta(ge=1, le=100, description="share of what Batch pods request that counts for their weight of cpu")
    ] = 25
    batch_idle: Annotated[
        bool, Meta(description="run Batch pods only when no other pod wants the cpu, where the kernel has cpu.idle")
    ] = True
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level shown")] = "info"
    log_format: Annotated[str, Meta(pattern="^(auto|json|text)$", description="auto: text on a terminal")] = "auto"
