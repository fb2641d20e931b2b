"""From what a pod says of a container to what its process becomes on this machine."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import deploy
from deploy.local.kubelet import identity
from deploy.local.kubelet.enter import Mount, Plan
from deploy.local.kubelet.powers import Powers
from deploy.local.kubelet.wire import RunnableContainer, RunnablePod


def plan_for(
    container: RunnableContainer,
    pod: RunnablePod,
    powers: Powers,
    *,
    work_dir: Path,
    procs: Sequence[Path],
    mounts: Sequence[Mount],
) -> Plan:
    """What the pod asks for, as far as this kubelet may do it. Raises InvalidInput."""
    chosen = identity.identity_of(container, pod, own_user=os.geteuid())
    plan = Plan(
        working_dir=container.working_dir or str(work_dir),
        told=-1,
        procs=[str(path) for path in procs],
        no_new_privileges=chosen.no_new_privileges,
    )
    if powers.users:
        plan = plan._replace(
            user=chosen.user, group=chosen.group, groups=chosen.groups, capabilities=chosen.capabilities
        )
    if powers.stage is not None:
        plan = plan._replace(
            stage=str(powers.stage),
            mounts=mounts,
            read_only_root=chosen.read_only_root,
            reachable=[str(each) for each in (*runtime_folders(), work_dir)] if chosen.user else (),
        )
    return plan


def inside(plan: Plan, pid: int) -> Plan:
    """The plan of one more process for the container whose main process is `pid`."""
    return plan._replace(stage="", mounts=(), reachable=(), join=pid if plan.stage else 0)


def runtime_folders() -> tuple[Path, ...]:
    """This Python and this product, which pods find at their own paths as they would in an image."""
    source = Path(deploy.__file__).parent.parent
    return tuple(dict.fromkeys(Path(each).resolve() for each in (sys.prefix, sys.base_prefix, source)))
