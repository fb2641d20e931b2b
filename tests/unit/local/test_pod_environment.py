"""The variables of a container, and what a pod may learn of itself."""

import pytest

from deploy.local.kubelet.environment import environment_of
from deploy.local.kubelet.wire import (
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    RunnableContainer,
    RunnableMeta,
    RunnablePod,
    RunnableSpec,
)
from shared.errors import InvalidInput

POD = RunnablePod(
    RunnableMeta(name="p", namespace="ns", uid="u", labels={"app": "a"}, annotations={"a": "1"}),
    RunnableSpec(node_name="n", service_account_name="sa"),
)


def of(*env: EnvVar) -> dict[str, str]:
    return environment_of(RunnableContainer(name="main", env=env), POD, "10.1.2.3")


def a_field(path: str) -> EnvVar:
    return EnvVar("X", value_from=EnvVarSource(ObjectFieldSelector(path)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "a"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a']", "1"),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.1.2.3"),
    ],
)
def test_a_pod_knows_its_own_fields(path: str, value: str) -> None:
    assert of(a_field(path)) == {"X": value}


def test_later_variables_see_earlier_ones_whatever_their_source() -> None:
    assert of(a_field("metadata.name"), EnvVar("C", "$(X) $(none) $$(X)"))["C"] == "p $(none) $(X)"


@pytest.mark.parametrize("variable", [a_field("spec.colour"), EnvVar("X", value_from=EnvVarSource())])
def test_what_the_kubelet_does_not_know_is_refused_by_the_variables_name(variable: EnvVar) -> None:
    with pytest.raises(InvalidInput, match="env X"):
        of(variable)
