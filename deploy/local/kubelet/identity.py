"""As whom a container runs, and what it may do: its security context and its pod's, put together. Pure."""

from dataclasses import dataclass

from deploy.local.kubelet.wire import Capabilities, RunnableContainer, RunnablePod
from shared.errors import InvalidInput

ALL = "ALL"
ROOT = 0

# In the kernel's order: the place is the number.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)


@dataclass(frozen=True)
class Identity:
    """`user` and `group` None: the kubelet's own. `capabilities`: the numbers of those it may have; None: any."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    capabilities: tuple[int, ...] | None = None
    no_new_privileges: bool = False
    read_only_root: bool = False


def identity_of(container: RunnableContainer, pod: RunnablePod, *, own_user: int) -> Identity:
    """The container's words go before the pod's. Raises InvalidInput for root where the pod forbids it."""
    own, shared = container.security_context, pod.spec.security_context
    user = _first(own.run_as_user, shared.run_as_user)
    group = _first(own.run_as_group, shared.run_as_group)
    if _first(own.run_as_non_root, shared.run_as_non_root) and (own_user if user is None else user) == ROOT:
        raise InvalidInput(
            source=f"container {container.name}",
            field="securityContext.runAsNonRoot",
            value=True,
            problem="the container would run as root: set runAsUser",
        )
    extra = (*(shared.supplemental_groups or ()), *(() if shared.fs_group is None else (shared.fs_group,)))
    return Identity(
        user=user,
        # Without a group of its own a user that an image does not know is in root's, as with any runtime.
        group=ROOT if group is None and user is not None else group,
        groups=extra,
        capabilities=_capabilities(own.capabilities, container) if own.capabilities else None,
        no_new_privileges=not own.allow_privilege_escalation,
        read_only_root=own.read_only_root_filesystem,
    )


def files_owner(pod: RunnablePod) -> int | None:
    """The user all containers of the pod share, if they do; its token files belong to that user."""
    found = users(pod)
    return found.pop() if len(found) == 1 else None


def users(pod: RunnablePod) -> set[int | None]:
    """Whom the pod's containers run as; None is the kubelet's own user."""
    shared = pod.spec.security_context.run_as_user
    return {_first(each.security_context.run_as_user, shared) for each in pod.all_containers}


def _capabilities(chosen: Capabilities, container: RunnableContainer) -> tuple[int, ...] | None:
    added, dropped = _numbers(chosen.add, container), _numbers(chosen.drop, container)
    return tuple(number for number in range(len(CAPABILITIES)) if number in added or number not in dropped)


def _numbers(names: tuple[str, ...] | None, container: RunnableContainer) -> set[int]:
    """Raises InvalidInput for a name the kernel does not have."""
    numbers: set[int] = set()
    for name in names or ():
        plain = name.upper().removeprefix("CAP_")
        if plain == ALL:
            return set(range(len(CAPABILITIES)))
        if plain not in CAPABILITIES:
            raise InvalidInput(
                source=f"container {container.name}",
                field="securityContext.capabilities",
                value=name,
                problem="no capability of this name is known",
            )
        numbers.add(CAPABILITIES.index(plain))
    return numbers


def _first(own: int | None, shared: int | None) -> int | None:
    return shared if own is None else own
