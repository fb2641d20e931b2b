"""What kubectl's user is told, in one sentence, where this server lacks what a command needs. Pure."""

from collections.abc import Sequence

from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.requests import Request

PROTOBUF = "application/vnd.kubernetes.protobuf"
WHOLE = "`make run CLUSTER=node` starts a cluster that has all of it"
INTERACTIVE = {"exec": "exec` or `kubectl cp", "attach": "attach", "portforward": "port-forward"}
"""Subresources of a Pod that are not served, and the commands that need them."""
_UNCONTROLLED = {
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
}


def hint(request: Request) -> str:
    """What to do in place of a command whose body is not read here."""
    if request.content_type != PROTOBUF:
        return ""
    if request.path.endswith("accessreviews"):
        return f"this server does not read protobuf; your user may do everything in it, and {WHOLE}"
    return (
        "this server does not read protobuf: add `--dry-run=client -o yaml | kubectl apply -f -` to the command, "
        f"or {WHOLE}"
    )


def not_interactive(subresource: str) -> str:
    """What to do in place of a command that speaks with the processes of a Pod."""
    return (
        f"no Pod is reached by `kubectl {INTERACTIVE[subresource]}` here, since Pods are plain processes of this "
        f"machine: `kubectl logs` shows their output, and {WHOLE}"
    )


def anonymous_hint(request: Request) -> str:
    """Why kubectl came without credentials: it leaves out the path of the server's URL, which holds them."""
    if not request.header(b"user-agent").startswith("kubectl"):
        return ""
    return ": begin the path of `kubectl get --raw` with that of the server's URL in the kubeconfig"


def warnings(request: Request, kind: ApiKind) -> Sequence[str]:
    """About a new object that nothing will act upon."""
    if (kind.group, kind.kind) not in _UNCONTROLLED or not request.header(b"user-agent").startswith("kubectl"):
        return ()
    return (f"no controller makes the Pods of a {kind.kind} here: create Pods (`kubectl run`), or {WHOLE}",)
