"""Each verb of the chart's roles, used with a real token on a real kube-apiserver, and each other verb, refused."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.local.identities import RELEASE
from shared.kube.errors import AlreadyExists
from shared.kube.resources import NAMESPACES
from tests.chart.access import NAMESPACE, in_force
from tests.chart.helm import CI, Helm, Manifest
from tests.chart.kubectl import Kubectl
from tests.support.apiserver import RealApiServer
from tests.support.programs import program

pytestmark = [pytest.mark.real_only("access rights are a real one's"), pytest.mark.thorough]

ACCESS_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}
METHODS |= {"delete": "DELETE", "deletecollection": "DELETE"}
SELECTING = ("list", "watch", "deletecollection")  # verbs that name an object by a selector, if at all
OTHER = "other"  # a name, and a namespace, that no rule is about
VERSIONS = {"slo.koordinator.sh": "v1alpha1", "config.koordinator.sh": "v1alpha1"}
CONTENT_TYPES = {"patch": "application/merge-patch+json"}


@dataclass(frozen=True)
class Rule:
    """A verb on resources of a group; `namespace` is empty for all, `names` for every name."""

    group: str
    resource: str
    verb: str
    namespace: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Act:
    """One call about an object, or about all of them."""

    group: str
    resource: str
    verb: str
    namespace: str
    name: str

    def is_allowed_by(self, rule: Rule) -> bool:
        return (
            (rule.group, rule.resource, rule.verb) == (self.group, self.resource, self.verb)
            and rule.namespace in ("", self.namespace)
            and (not rule.names or self.name in rule.names)
        )

    def is_refused(self, http: httpx.Client) -> bool:
        """By its rights, with an empty body, which is judged after these; nothing is stored."""
        method, (kind, _, subresource) = METHODS[self.verb], self.resource.partition("/")
        root = f"/apis/{self.group}/" if self.group else "/api/"
        in_namespace = f"namespaces/{self.namespace}" if self.namespace else ""
        name = "" if self.verb in SELECTING else self.name
        path = "/".join(filter(None, (root + VERSIONS.get(self.group, "v1"), in_namespace, kind, name, subresource)))
        query = {} if method == "GET" else {"dryRun": "All"}
        if self.verb in SELECTING and self.name:
            query["fieldSelector"] = f"metadata.name={self.name}"
        if self.verb == "watch":
            query |= {"watch": "1", "timeoutSeconds": "1"}
        headers = {"Content-Type": CONTENT_TYPES.get(self.verb, "application/json")}
        with http.stream(method, path, params=query, headers=headers, content=b"{}") as answer:
            return answer.status_code == httpx.codes.FORBIDDEN and f"cannot {self.verb} " in answer.read().decode()


def rules_of(objects: list[Manifest]) -> dict[tuple[str, str], set[Rule]]:
    """What rendered roles allow, by namespace and name of the service account that they are bound to.

    Accounts that are bound to Kubernetes' own ClusterRoles too are left out: these allow what the chart does not list.
    """
    roles = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}
    found: dict[tuple[str, str], set[Rule]] = {}
    beyond: set[tuple[str, str]] = set()
    for binding in (each for each in objects if each["kind"] in ("ClusterRoleBinding", "RoleBinding")):
        namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        of = "" if reference["kind"] == "ClusterRole" else namespace
        role = roles.get((reference["kind"], of, reference["name"]))  # None: one of Kubernetes' own
        for subject in binding["subjects"]:
            if subject["kind"] != "ServiceAccount":
                continue
            account = subject["namespace"], subject["name"]
            if role is not None:
                found.setdefault(account, set()).update(_flattened(role["rules"], namespace))
            elif reference["kind"] == "ClusterRole":
                beyond.add(account)
    return {account: rules for account, rules in found.items() if account not in beyond}


def _flattened(rules: list[dict[str, Any]], namespace: str) -> Iterator[Rule]:
    for rule in rules:
        for group, resource, verb in product(rule.get("apiGroups", ()), rule.get("resources", ()), rule["verbs"]):
            yield Rule(group, resource, verb, namespace, tuple(rule.get("resourceNames", ())))


def acts_around(rules: set[Rule], namespaced: set[tuple[str, str]]) -> set[Act]:
    """Every verb on every resource that a rule is about: each object that one names and another, here and elsewhere."""
    acts: set[Act] = set()
    for group, resource in {(rule.group, rule.resource) for rule in rules}:
        of = [rule for rule in rules if (rule.group, rule.resource) == (group, resource)]
        kind, _, subresource = resource.partition("/")
        names = {name for rule in of for name in rule.names} | {OTHER}
        namespaces = {rule.namespace for rule in of} | {OTHER, ""}
        if (group, kind) not in namespaced and not any(rule.namespace for rule in of):
            namespaces = {""}
        for verb, namespace, name in product(METHODS, namespaces, names):
            if verb in SELECTING and not subresource:
                acts |= {Act(group, resource, verb, namespace, each) for each in (name, "")}
            elif verb not in SELECTING and (namespace or namespaces == {""}):
                needs_name = verb != "create" or subresource
                acts.add(Act(group, resource, verb, namespace, name if needs_name else ""))
    return acts


def namespaced_kinds(http: httpx.Client) -> set[tuple[str, str]]:
    """Group and resource of those that are served."""
    paths = {
        each["name"]: f"/apis/{each['preferredVersion']['groupVersion']}" for each in _got(http, "/apis")["groups"]
    }
    return {
        (group, each["name"])
        for group, path in ({"": "/api/v1"} | paths).items()
        for each in _got(http, path)["resources"]
        if each["namespaced"]
    }


def _got(http: httpx.Client, path: str) -> Any:
    return http.get(path).raise_for_status().json()


@pytest.fixture(scope="module")
def cluster(real: RealApiServer, helm: Helm) -> RealApiServer:
    """Without a release."""
    helm.must("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks", "--kubeconfig", real.kubeconfig)
    real.client().create(NAMESPACES, {"metadata": {"name": OTHER}})
    return real


@pytest.fixture
def rendered(
    request: pytest.FixtureRequest, cluster: RealApiServer, helm: Helm, tmp_path: Path
) -> Iterator[list[Manifest]]:
    """The accounts and roles of a chart's values, hooks included, in force."""
    objects = [each for each in helm.objects("--values", request.param) if each["kind"] in ACCESS_KINDS]
    for namespace in {each["metadata"].get("namespace", NAMESPACE) for each in objects}:
        with suppress(AlreadyExists):
            cluster.client().create(NAMESPACES, {"metadata": {"name": namespace}})
    file, kubectl = tmp_path / "access.yaml", Kubectl(program("kubectl"), cluster.kubeconfig)
    file.write_text(yaml.safe_dump_all(objects))
    kubectl.must("apply", "--server-side", "-f", str(file))
    in_force(cluster)
    yield objects
    kubectl.must("delete", "-f", str(file))
    in_force(cluster)


@pytest.fixture(scope="module")
def judged() -> set[tuple[str, frozenset[Rule]]]:
    """Accounts with their rules that a test has been through: many values give the same."""
    return set()


every_ci = pytest.mark.parametrize(
    "rendered", CI, ids=[path.stem.removesuffix("-values") for path in CI], indirect=True
)


@every_ci
def test_each_verb_of_the_roles_can_be_used_and_no_other(
    cluster: RealApiServer, rendered: list[Manifest], judged: set[tuple[str, frozenset[Rule]]]
) -> None:
    with cluster.http() as admin:
        namespaced = namespaced_kinds(admin)
    for (namespace, account), rules in rules_of(rendered).items():
        if not rules or (account, frozenset(rules)) in judged:
            continue
        judged.add((account, frozenset(rules)))
        token = cluster.client().request_token(namespace, account).token
        used: set[Rule] = set()
        with cluster.http(headers={"Authorization": f"Bearer {token}"}) as http:
            for act in acts_around(rules, namespaced):
                allowing = {rule for rule in rules if act.is_allowed_by(rule)}
                assert act.is_refused(http) is not bool(allowing), f"{account}: {act}"
                used |= allowing
        assert used == rules, "a rule that no call can use"


@every_ci
def test_each_verb_on_a_path_can_be_used_and_no_other(cluster: RealApiServer, rendered: list[Manifest]) -> None:
    with cluster.http() as http:
        for role in (each for each in rendered if each["kind"] == "ClusterRole"):
            allowed = {
                (path, verb)
                for rule in role["rules"]
                for path, verb in product(rule.get("nonResourceURLs", ()), rule["verbs"])
            }
            bound = [each for each in rendered if each.get("roleRef", {}).get("name") == role["metadata"]["name"]]
            subjects = [subject for each in bound for subject in each["subjects"]]
            for subject, (path, _), verb in product(subjects, allowed, ("get", "post", "put", "patch", "delete")):
                asked = path.replace("*", "any/thing")
                is_expected = any(
                    verb == each_verb and (asked == each or (each.endswith("*") and asked.startswith(each[:-1])))
                    for each, each_verb in allowed
                )
                assert may_on_path(http, subject, verb, asked) is is_expected, f"{subject}: {verb} {asked}"


def may_on_path(http: httpx.Client, subject: dict[str, str], verb: str, path: str) -> bool:
    who: dict[str, object] = {"user": subject["name"]}
    if subject["kind"] == "Group":
        who = {"user": "somebody", "groups": [subject["name"]]}
    elif subject["kind"] == "ServiceAccount":
        who = {"user": f"system:serviceaccount:{subject['namespace']}:{subject['name']}"}
    body = {"spec": {**who, "nonResourceAttributes": {"path": path, "verb": verb}}}
    answer = http.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=body).raise_for_status()
    return bool(answer.json()["status"]["allowed"])
