"""The variables of a container, and what a pod may learn of itself."""

from collections.abc import Mapping

import pytest

from deploy.local.kubelet import environment, fields
from deploy.local.kubelet.environment import environment_of
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.sources import Missing, Token
from deploy.local.kubelet.wire import (
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    KeySelector,
    ObjectFieldSelector,
    ObjectReference,
    ResourceFieldSelector,
    RunnableContainer,
    RunnableMeta,
    RunnablePod,
    RunnableSpec,
)
from shared.api.core import ResourceRequirements
from shared.errors import InvalidInput
from shared.quantity import Resources

HOST = Host("10.1.2.3", Resources(4000, 8 << 30))
POD = RunnablePod(
    RunnableMeta(name="p", namespace="ns", uid="u", labels={"app": "a"}, annotations={"b": 'x"\n', "a": "1"}),
    RunnableSpec(node_name="n", service_account_name="sa"),
)


class Cluster:
    """One ConfigMap and one Secret."""

    def config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return self._found("configmap", name)

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return self._found("secret", name)

    def token(self, pod: RunnablePod, audience: str, seconds: int, now: float) -> Token:
        raise AssertionError("no variable is a token")

    def _found(self, kind: str, name: str) -> Mapping[str, bytes]:
        if name != "there":
            raise Missing(f'{kind} "{name}" not found')
        return {"key": kind.encode()}


def of(*env: EnvVar, env_from: tuple[EnvFromSource, ...] = ()) -> dict[str, str]:
    container = RunnableContainer(
        name="main",
        env=env,
        env_from=env_from,
        resources=ResourceRequirements(limits={"memory": "100Mi"}, requests={"cpu": "250m"}),
    )
    return environment_of(container, POD, HOST, Cluster())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "a"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a']", "1"),
        ("metadata.annotations", 'a="1"\nb="x\\"\\n"'),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.1.2.3"),
        ("status.podIPs", "10.1.2.3"),
    ],
)
def test_a_pod_knows_its_own_fields(path: str, value: str) -> None:
    assert fields.field_value(ObjectFieldSelector(path), POD, HOST) == value


def test_a_field_that_pods_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="colour"):
        of(EnvVar("X", value_from=EnvVarSource(field_ref=ObjectFieldSelector("spec.colour"))))


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("requests.cpu", "", "1"),  # rounded up
        ("requests.cpu", "1m", "250"),
        ("limits.memory", "1Mi", "100"),
        ("limits.memory", "0", "104857600"),
        ("limits.cpu", "1m", "4000"),  # none is set: the node's
        ("requests.memory", "1", "0"),
    ],
)
def test_a_container_knows_its_resources_in_units_of_the_divisor(resource: str, divisor: str, value: str) -> None:
    source = EnvVarSource(resource_field_ref=ResourceFieldSelector(resource=resource, divisor=divisor))
    assert of(EnvVar("X", value_from=source)) == {"X": value}


@pytest.mark.parametrize(("resource", "divisor"), [("cpu", ""), ("used.cpu", ""), ("limits.cpu", "half")])
def test_a_resource_that_means_nothing_is_refused(resource: str, divisor: str) -> None:
    source = EnvVarSource(resource_field_ref=ResourceFieldSelector(resource=resource, divisor=divisor))
    with pytest.raises(InvalidInput, match="resourceFieldRef"):
        of(EnvVar("X", value_from=source))


def test_later_variables_see_earlier_ones_whatever_their_source() -> None:
    from_map = EnvVarSource(config_map_key_ref=KeySelector("there", "key"))
    from_secret = EnvVarSource(secret_key_ref=KeySelector("there", "key"))
    found = of(EnvVar("A", value_from=from_map), EnvVar("B", value_from=from_secret), EnvVar("C", "$(A) $(B)"))
    assert found["C"] == "configmap secret"


def test_whole_objects_come_first_and_single_variables_replace_theirs() -> None:
    whole = EnvFromSource(prefix="P_", config_map_ref=ObjectReference("there"))
    assert of(env_from=(whole,)) == {"P_key": "configmap"}
    assert of(EnvVar("P_key", "own"), env_from=(whole,)) == {"P_key": "own"}


@pytest.mark.parametrize("selector", [KeySelector("absent", "key"), KeySelector("there", "absent")])
def test_what_is_not_there_is_missed_by_name_unless_it_is_optional(selector: KeySelector) -> None:
    with pytest.raises(Missing, match="absent"):
        of(EnvVar("X", value_from=EnvVarSource(secret_key_ref=selector)))
    optional = KeySelector(selector.name, selector.key, optional=True)
    assert of(EnvVar("X", value_from=EnvVarSource(secret_key_ref=optional))) == {}


def test_a_source_the_kubelet_does_not_know_is_refused_by_the_variables_name() -> None:
    with pytest.raises(InvalidInput, match="env X"):
        of(EnvVar("X", value_from=EnvVarSource()))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://127.0.0.1:6443", {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}),
        ("https://[::1]", {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}),
        ("http://127.0.0.1:8080", {}),
    ],
)
def test_containers_are_told_of_an_api_server_they_can_speak_to(server: str, expected: dict[str, str]) -> None:
    assert environment.of_server(server) == expected
