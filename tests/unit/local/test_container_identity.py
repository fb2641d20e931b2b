"""As whom a container runs, by its own security context and its pod's."""

import pytest

from deploy.local.kubelet.identity import CAPABILITIES, Identity, files_owner, identity_of
from deploy.local.kubelet.wire import (
    Capabilities,
    PodSecurityContext,
    RunnableContainer,
    RunnablePod,
    RunnableSpec,
    SecurityContext,
)
from shared.errors import InvalidInput

EVERYTHING = tuple(range(len(CAPABILITIES)))


def identity(
    own: SecurityContext | None = None, shared: PodSecurityContext | None = None, own_user: int = 0
) -> Identity:
    container = RunnableContainer(name="main", security_context=own or SecurityContext())
    spec = RunnableSpec(containers=(container,), security_context=shared or PodSecurityContext())
    return identity_of(container, RunnablePod(spec=spec), own_user=own_user)


def test_without_a_security_context_a_container_runs_as_its_kubelet_does() -> None:
    assert identity() == Identity()


def test_a_containers_own_words_go_before_its_pods() -> None:
    shared = PodSecurityContext(run_as_user=1000, run_as_group=1000, fs_group=7, supplemental_groups=(8,))
    found = identity(SecurityContext(run_as_user=0, run_as_group=0), shared)
    assert (found.user, found.group, found.groups) == (0, 0, (8, 7))
    assert identity(None, shared).user == 1000


def test_a_user_without_a_group_is_in_the_group_of_root() -> None:
    assert identity(SecurityContext(run_as_user=1000)).group == 0


@pytest.mark.parametrize(
    ("capabilities", "kept"),
    [
        (None, None),
        (Capabilities(drop=("ALL",)), ()),
        (Capabilities(drop=("ALL",), add=("CHOWN",)), (0,)),
        (Capabilities(drop=("all",), add=("CAP_KILL",)), (5,)),
        (Capabilities(drop=("CHOWN",)), EVERYTHING[1:]),
        (Capabilities(add=("SYS_TIME",)), EVERYTHING),
    ],
)
def test_capabilities_are_dropped_and_then_added(
    capabilities: Capabilities | None, kept: tuple[int, ...] | None
) -> None:
    assert identity(SecurityContext(capabilities=capabilities)).capabilities == kept


def test_a_capability_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="FLYING"):
        identity(SecurityContext(capabilities=Capabilities(add=("FLYING",))))


@pytest.mark.parametrize("user", [None, 0])
def test_root_is_refused_where_the_pod_forbids_it(user: int | None) -> None:
    shared = PodSecurityContext(run_as_non_root=True, run_as_user=user)
    with pytest.raises(InvalidInput, match="runAsNonRoot"):
        identity(None, shared)


def test_a_container_may_take_root_back_for_itself() -> None:
    shared = PodSecurityContext(run_as_non_root=True, run_as_user=1000)
    assert identity(SecurityContext(run_as_non_root=False, run_as_user=0), shared).user == 0


def test_a_kubelet_that_is_not_root_satisfies_a_pod_that_forbids_root() -> None:
    assert identity(None, PodSecurityContext(run_as_non_root=True), own_user=1000).user is None


def pod_of(*users: int | None) -> RunnablePod:
    containers = tuple(RunnableContainer(security_context=SecurityContext(run_as_user=user)) for user in users)
    return RunnablePod(spec=RunnableSpec(containers=containers))


def test_token_files_belong_to_the_user_that_all_containers_share() -> None:
    assert files_owner(pod_of(7, 7)) == 7
    assert files_owner(pod_of(7, 8)) is None
    assert files_owner(pod_of(None)) is None
