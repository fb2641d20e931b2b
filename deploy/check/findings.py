"""The checks: each reads what was observed, and says good, bad with what to do, or unknown with why."""

import enum
from collections.abc import Callable, Iterable, Iterator

import msgspec

from deploy.check.observed import CheckedKubelet, CheckedWorkload, Observed, Unread, scheduler_name
from deploy.rendering import count, names
from deploy.versions import MINOR, SUPPORTED_SKEW, minor_skew

LEASTMINOR = 30  # of Kubernetes; the chart's kubeVersion
STALE_SECONDS = 300.0  # five reports of the default interval
SKEW_SECONDS = 5.0
LEASE_SECONDS = 60.0
OWN_WRITER = "headroom-manager"


class Verdict(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """The outcome of one check. `action` is what to do, for a bad one."""

    check: str
    status: Verdict
    detail: str
    action: str = ""


def findings(seen: Observed) -> list[Finding]:
    """The outcomes of all checks."""
    return [finding for check in _CHECKS for finding in check(seen)]


def _unread(check: str, part: Unread) -> Finding:
    return Finding(check, Verdict.UNKNOWN, part.why)


def _kubernetes(seen: Observed) -> Iterator[Finding]:
    if isinstance(seen.server, Unread):
        yield Finding("kubernetes", Verdict.BAD, seen.server.why, "check --kubeconfig and --context")
        return
    version = seen.server.version
    found = MINOR.match(version)
    if found is None:
        yield Finding("kubernetes", Verdict.UNKNOWN, f"the version {version!r} is not known")
    elif (int(found[1]), int(found[2])) < (1, LEASTMINOR):
        action = f"upgrade the cluster to 1.{LEASTMINOR} or newer"
        yield Finding("kubernetes", Verdict.BAD, f"version {version} is too old", action)
    else:
        yield Finding("kubernetes", Verdict.GOOD, f"version {version}")


def _clock(seen: Observed) -> Iterator[Finding]:
    if isinstance(seen.server, Unread):
        return
    action = "synchronize the clocks, for example by chrony: reports and certificates carry times"
    ahead = seen.server.ahead_seconds
    if abs(ahead) > SKEW_SECONDS:
        detail = f"the API server's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
        yield Finding("clock", Verdict.BAD, detail, action)
        return
    fast = [] if isinstance(seen.nodes, Unread) else [e.name for e in seen.nodes if e.ahead_seconds > SKEW_SECONDS]
    if fast:
        detail = f"the clocks of nodes are ahead of the API server's: {names(fast)}"
        yield Finding("clock", Verdict.BAD, detail, action)
    else:
        yield Finding("clock", Verdict.GOOD, f"no clock is more than {SKEW_SECONDS:.0f} s ahead of the API server's")


def _rights(seen: Observed) -> Iterator[Finding]:
    missing = seen.missing_rights
    if isinstance(missing, Unread):
        yield _unread("rights", missing)
    elif missing:
        action = "install and upgrade as a user with these rights, for example a cluster-admin"
        yield Finding("rights", Verdict.BAD, f"you may not {', '.join(missing)}", action)
    else:
        yield Finding("rights", Verdict.GOOD, "you may install, upgrade and uninstall the chart")


def _pod_security(seen: Observed) -> Iterator[Finding]:
    standard, namespace = seen.pod_security, seen.namespace
    if isinstance(standard, Unread):
        yield _unread("pod security", standard)
    elif standard in ("baseline", "restricted"):
        action = f"kubectl label namespace {namespace} --overwrite pod-security.kubernetes.io/enforce=privileged"
        detail = f"namespace {namespace} enforces {standard}, which forbids the agents' host paths"
        yield Finding("pod security", Verdict.BAD, detail, action)
    else:
        yield Finding("pod security", Verdict.GOOD, f"namespace {namespace} admits the agents' host paths")


def _definition(seen: Observed) -> Iterator[Finding]:
    found = seen.definition
    if isinstance(found, Unread):
        yield _unread("definition", found)
    elif found is None:
        yield Finding("definition", Verdict.UNKNOWN, "NodeMetric is not defined yet; the chart installs it")
    elif not found.keeps_predictions:
        detail = "the NodeMetric definition drops status.prediction, so margins and explanations are lost"
        action = "kubectl apply --server-side --force-conflicts -f deploy/helm/headroom/files/crds/nodemetrics.yaml"
        yield Finding("definition", Verdict.BAD, detail, action)
    else:
        served, stored = ", ".join(found.served), ", ".join(found.stored)
        yield Finding("definition", Verdict.GOOD, f"NodeMetric is served as {served} and stored as {stored}")


def _components(seen: Observed) -> Iterator[Finding]:
    if isinstance(seen.workloads, Unread):
        yield _unread("release", seen.workloads)
        return
    for component in ("manager", "agent"):
        ours = [each for each in seen.workloads if each.is_part(component)]
        if len(ours) > 1:
            detail = f"{len(ours)} releases run here: {names([each.key for each in ours])}"
            yield Finding(component, Verdict.BAD, detail, "uninstall all but one: they overwrite each other's values")
        elif ours:
            yield _component(component, ours[0], seen.here)
        else:
            yield Finding(component, Verdict.UNKNOWN, "not installed by a chart")


def _component(component: str, found: CheckedWorkload, here: str) -> Finding:
    version = found.labels.get("app.kubernetes.io/version", "")
    kind = f"{found.kind.lower()}/{found.key.partition('/')[2]}"
    if found.ready < found.wanted:
        namespace = found.key.partition("/")[0]
        detail = f"{found.ready} of {found.wanted} pods are ready in {found.key}"
        return Finding(component, Verdict.BAD, detail, f"kubectl --namespace {namespace} describe {kind}")
    if minor_skew(version, here) > SUPPORTED_SKEW:
        detail = f"version {version} is more than one minor version from this command's, {here}"
        return Finding(component, Verdict.BAD, detail, "use a command of the release's version, or upgrade the release")
    return Finding(component, Verdict.GOOD, f"version {version}, {count(found.ready, 'pod')} ready in {found.key}")


def _leader(seen: Observed) -> Iterator[Finding]:
    leader = seen.leader
    if isinstance(leader, Unread):
        yield _unread("leader", leader)
    elif leader is None:
        yield Finding("leader", Verdict.UNKNOWN, f"no manager has led in namespace {seen.namespace} yet")
    elif leader.renewed_seconds_ago > LEASE_SECONDS:
        detail = f"{leader.holder} led last, {leader.renewed_seconds_ago:.0f} s ago"
        action = f"kubectl --namespace {seen.namespace} logs -l app.kubernetes.io/component=manager"
        yield Finding("leader", Verdict.BAD, detail, action)
    else:
        yield Finding("leader", Verdict.GOOD, f"{leader.holder} leads")


def _reports(seen: Observed) -> Iterator[Finding]:
    if isinstance(seen.nodes, Unread):
        yield _unread("reports", seen.nodes)
        return
    wanted = [each for each in seen.nodes if each.measurable and each.ready]
    recent = [each for each in wanted if (age := each.report_age_seconds) is not None and age <= STALE_SECONDS]
    if not any(each.report_age_seconds is not None for each in seen.nodes):
        yield Finding("reports", Verdict.UNKNOWN, f"none of {count(len(wanted), 'node')} has reported yet")
    elif len(recent) < len(wanted):
        silent = [each.name for each in wanted if each not in recent]
        detail = f"{len(silent)} of {len(wanted)} nodes have not reported for {STALE_SECONDS:.0f} s: {names(silent)}"
        action = "kubectl get nodemetrics, then look at the agents' pods of these nodes (docs/troubleshooting.md)"
        yield Finding("reports", Verdict.BAD, detail, action)
    else:
        yield Finding("reports", Verdict.GOOD, f"{count(len(recent), 'node')} reported in the last 5 minutes")


def _kubelets(seen: Observed) -> Iterator[Finding]:
    reached = [each for each in seen.kubelets if isinstance(each, CheckedKubelet)]
    if not reached:
        why = next((each.why for each in seen.kubelets if isinstance(each, Unread)), "there is no node with a kubelet")
        for check in ("kubelets", "cgroup version", "pressure"):
            yield Finding(check, Verdict.UNKNOWN, why)
        return
    failed = [each.why for each in seen.kubelets if isinstance(each, Unread)]
    if failed:
        action = "open port 10250 of the nodes to the control plane"
        yield Finding("kubelets", Verdict.BAD, "; ".join(failed), action)
    else:
        yield Finding(
            "kubelets", Verdict.GOOD, f"the API server reaches {count(len(reached), 'kubelet')} of those tried"
        )
    silent = [each.node for each in reached if not each.reports_pressure]
    # Pressure of cgroups is reported on cgroup v2 only.
    unclear = [each.node for each in reached if not (each.reports_pressure or each.refuses_cgroup_v1)]
    if unclear:
        how = "on the node, `stat -fc %T /sys/fs/cgroup` prints cgroup2fs or tmpfs"
        why = f"these kubelets do not say: {names(unclear)}; {how}"
        yield Finding("cgroup version", Verdict.UNKNOWN, why)
    else:
        yield Finding("cgroup version", Verdict.GOOD, "cgroup v2")
    if silent:
        how = "on the node, /proc/pressure/memory exists if the kernel has it"
        why = f"these kubelets do not report it: {names(silent)}; {how}"
        yield Finding("pressure", Verdict.UNKNOWN, why)
    else:
        yield Finding("pressure", Verdict.GOOD, "kubelets report pressure stall information")


def _webhook(seen: Observed) -> Iterator[Finding]:
    if isinstance(seen.webhooks, Unread):
        yield _unread("webhook", seen.webhooks)
        return
    if not seen.webhooks:
        yield Finding("webhook", Verdict.UNKNOWN, "no webhook of Headroom is registered")
    for each in seen.webhooks:
        if each.problem:
            action = "let the control plane reach manager.webhook.port of the manager's pods (docs/how-to/install.md)"
            detail = f"{each.configuration} (failurePolicy {each.failure_policy}): {each.problem}"
            yield Finding("webhook", Verdict.BAD, detail, action)
        else:
            yield Finding("webhook", Verdict.GOOD, f"{each.configuration} translates Mid pods")
    blind = bool(seen.webhooks) and not any(each.sees_all_pods for each in seen.webhooks)
    if blind and not isinstance(seen.profiles, Unread) and seen.profiles:
        detail = (
            f"{count(seen.profiles, 'ClusterColocationProfile')} cannot apply: the webhook is not called for all pods"
        )
        yield Finding("profiles", Verdict.BAD, detail, "set manager.webhook.profiles=true")


def _extender(seen: Observed) -> Iterator[Finding]:
    asked = seen.extender_requests
    if isinstance(asked, Unread):
        yield _unread("scheduler extender", asked)
    elif asked:
        yield Finding("scheduler extender", Verdict.GOOD, f"schedulers have sent {count(asked, 'request')}")
    else:
        why = (
            "no scheduler has asked this manager since it started; without, pods are placed by the Nodes' status alone"
        )
        yield Finding("scheduler extender", Verdict.UNKNOWN, why)


def _scheduler(seen: Observed) -> Iterator[Finding]:
    name = "" if isinstance(seen.workloads, Unread) else scheduler_name(seen.workloads)
    if not name:
        return
    leader = seen.scheduler
    action = f"kubectl --namespace {seen.namespace} get pods -l app.kubernetes.io/component=scheduler"
    if isinstance(leader, Unread):
        yield _unread("second scheduler", leader)
    elif leader is None:
        yield Finding("second scheduler", Verdict.BAD, f"{name} has not started, so pods that name it wait", action)
    elif leader.renewed_seconds_ago > LEASE_SECONDS:
        detail = f"{name} led last {leader.renewed_seconds_ago:.0f} s ago, so pods that name it wait"
        yield Finding("second scheduler", Verdict.BAD, detail, action)
    else:
        yield Finding("second scheduler", Verdict.GOOD, f"{leader.holder} leads and binds the pods that name {name}")


def _other_writers(seen: Observed) -> Iterator[Finding]:
    if isinstance(seen.nodes, Unread):
        yield _unread("other writers", seen.nodes)
    else:
        others = {writer: each.name for each in seen.nodes for writer in each.writers if writer != OWN_WRITER}
        for writer, node in sorted(others.items()):
            detail = f"{writer} writes Mid or Batch of nodes, among them {node}"
            yield Finding("other writers", Verdict.BAD, detail, f"stop {writer}, or limit manager.settings.offers")
        if not any(each.writers for each in seen.nodes):
            yield Finding(
                "other writers", Verdict.UNKNOWN, "the API server does not say who wrote Mid and Batch of nodes"
            )
        elif not others:
            yield Finding("other writers", Verdict.GOOD, "no other client writes Mid or Batch of nodes")
    if not isinstance(seen.workloads, Unread):
        yield from _other_systems(seen.workloads)


def _other_systems(workloads: Iterable[CheckedWorkload]) -> Iterator[Finding]:
    running = [each for each in workloads if each.wanted]
    ours = {part: [each for each in running if each.is_part(part)] for part in ("agent", "manager")}
    provider = "".join(each.flag("--cloud-provider") for each in ours["manager"])
    enforces = any(argument == "--autoscaling-mode=enforce" for each in ours["manager"] for argument in each.arguments)
    for each in running:
        action = ""
        if each.runs("koordlet"):
            detail = "koordlet writes NodeMetrics"
            action = "run only one agent on each node (agent.nodeSelector)" if ours["agent"] else ""
        elif each.runs("koord-manager"):
            detail = "koord-manager writes Nodes"
            action = "stop it, or disable its noderesource controller" if ours["manager"] else ""
        elif each.runs("cluster-autoscaler"):
            detail = "Cluster Autoscaler launches and deletes nodes"
            action = (
                "scale one of the two to 0, or set manager.autoscaler.mode=recommend" if provider and enforces else ""
            )
        elif each.key.endswith("/karpenter"):
            detail = "Karpenter launches and deletes nodes"
            other = provider and provider != "karpenter" and enforces
            action = "remove its NodePools, or set manager.autoscaler.mode=recommend" if other else ""
        else:
            continue
        status = Verdict.BAD if action else Verdict.GOOD
        beside = "and so does Headroom" if action else "and Headroom does not"
        yield Finding("other systems", status, f"{detail} ({each.key}), {beside}", action)


_CHECKS: tuple[Callable[[Observed], Iterator[Finding]], ...] = (
    _kubernetes,
    _rights,
    _pod_security,
    _definition,
    _components,
    _leader,
    _reports,
    _kubelets,
    _webhook,
    _extender,
    _scheduler,
    _clock,
    _other_writers,
)
