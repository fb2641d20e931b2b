"""`headroom up`: starts the local cluster, shows its state, and stops it."""

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.local import cloud, freshness, home, ports, private
from deploy.local import profile as profiles
from deploy.local.cluster import ClusterKind, LocalCluster, Plan, Ports, SchedulerKind
from deploy.local.freshness import Seen
from deploy.local.home import Home
from deploy.local.kubelet.containment import CgroupContainment
from deploy.local.profile import ProfileName
from deploy.local.screen import LiveScreen, Nodes, PlainScreen, Table
from shared import termination
from shared.errors import HeadroomError, InvalidInput

logger = logging.getLogger(__name__)

LIVE_SECONDS = 1.0
PLAIN_SECONDS = 15.0
REQUEST_SECONDS = 5.0
LAST_ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class UpOptions:
    """The options of the command line. Port 0: any free one. `for_seconds` None: until Ctrl-C.

    `cloud` is a file, "none", or empty for the sample.
    """

    nodes: int
    trace: Path | None
    speed: float
    keep: Path | None
    for_seconds: float | None
    as_json: bool
    profile: ProfileName
    ports: Ports
    kind: ClusterKind
    scheduler: SchedulerKind
    cloud: str


def run(options: UpOptions) -> int:
    """Runs the whole command; 0 after a normal end, 1 if the cluster failed. Raises InvalidInput."""
    os.umask(private.UMASK)  # the cluster's processes inherit it
    if options.trace is not None:
        from deploy.local.simulated import traces

        traces.load(options.trace)  # reports an error here instead of in a log
    cloud.check(options.cloud)
    if options.scheduler is SchedulerKind.KUBE and options.kind is ClusterKind.EMBEDDED:
        problem = "comes with --cluster apiserver only"
        raise InvalidInput(source="command line", field="--scheduler", value=options.scheduler.value, problem=problem)
    stop = termination.event()
    for cluster_id in home.clear_dead():
        _say(f"cleared away what cluster {cluster_id} had left behind")
    found = home.claim(options.keep)
    try:
        return _up(options, found, stop)
    finally:
        home.release(found)


def _up(options: UpOptions, found: Home, stop: threading.Event) -> int:
    plan = Plan(
        kind=options.kind,
        scheduler=options.scheduler,
        profile=profiles.PROFILES[options.profile],
        ports=_ports(options.ports),
        simulated_nodes=options.nodes,
        speed=options.speed,
        trace=options.trace,
        cloud=cloud.choose(options.cloud, found),
    )
    local = LocalCluster(found, plan, _say)
    local.write_files()
    _introduce(options, plan, found, local)
    try:
        local.start(stop.is_set)
        return _watch(options, local, stop)
    except HeadroomError as error:
        _say(str(error))
        return 0 if stop.is_set() else 1
    finally:
        _say("stopping")
        local.close()


def _watch(options: UpOptions, local: LocalCluster, stop: threading.Event) -> int:
    """Shows the table until the time is over or Ctrl-C; then prints its last state for scripts."""
    reader, notices = _Reader(local.manager_url), local.notices
    deadline = None if options.for_seconds is None else time.monotonic() + options.for_seconds
    if options.as_json:
        stop.wait(options.for_seconds)
        return _print_json(reader)
    is_live = sys.stdout.isatty()
    shown = LiveScreen() if is_live else PlainScreen()
    table_at = answered_at = 0.0
    answer: Nodes | None = None
    overdue: dict[str, float] = {}
    try:
        while not stop.is_set() and (deadline is None or time.monotonic() < deadline):
            for notice in notices.new() if notices is not None else ():
                _say(f"{time.strftime('%H:%M:%S')}  {notice}")
            known, overdue = overdue, reader.overdue()
            if known.keys() != overdue.keys():
                table_at = 0.0  # shows the change at once
            if time.monotonic() >= table_at:
                if fresh := reader.nodes():
                    answer, answered_at = fresh, time.monotonic()
                if answer is not None:
                    shown.show(_table(options, local, answer, time.monotonic() - answered_at, overdue))
                    table_at = time.monotonic() + (0.0 if is_live else PLAIN_SECONDS)
            stop.wait(LIVE_SECONDS if deadline is None else max(0.0, min(LIVE_SECONDS, deadline - time.monotonic())))
    finally:
        shown.close()
    return 0


def _table(
    options: UpOptions, local: LocalCluster, answer: Nodes, silent_seconds: float, overdue: Mapping[str, float]
) -> Table:
    newest = freshness.newest_report_seconds([answer.report_seconds(row) for row in answer.nodes])
    seen = Seen(
        silent_seconds=silent_seconds,
        report_seconds=None if newest is None else newest + silent_seconds,
        report_interval_seconds=profiles.PROFILES[options.profile].reporting_interval_seconds,
        write_problem="" if local.write_probe is None else local.write_probe.problem(),
    )
    caption = _caption(answer.cluster, local.manager_url, overdue)
    return Table(answer, caption, silent_seconds, freshness.warnings(seen))


def _caption(cluster: str, url: str, overdue: Mapping[str, float]) -> str:
    late = (f"the {loop}'s round has been going on for {seconds:.0f} s" for loop, seconds in overdue.items())
    return "  ".join([time.strftime("%H:%M:%S"), cluster, url, *late])


def _print_json(reader: "_Reader") -> int:
    deadline = time.monotonic() + LAST_ANSWER_SECONDS
    while time.monotonic() < deadline:
        if body := reader.body():
            print(msgspec.json.format(body, indent=2).decode())
            return 0
        time.sleep(0.2)
    _say("the manager does not answer")
    return 1


class _Health(msgspec.Struct, frozen=True):
    overdue_loops: dict[str, float] = {}


class _Reader:
    """Queries the manager; a missing answer is normal while the manager starts."""

    def __init__(self, url: str) -> None:
        import httpx

        self._url = f"{url}/api/v1/nodes"
        self._health = f"{url}/healthz"
        self._http = httpx.Client(timeout=REQUEST_SECONDS)
        self._errors = httpx.HTTPError

    def body(self) -> bytes | None:
        try:
            answer = self._http.get(self._url)
        except self._errors:
            return None
        return answer.content if answer.status_code == 200 else None

    def overdue(self) -> dict[str, float]:
        """The manager's loops that take too long, with their time in seconds."""
        try:
            return msgspec.json.decode(self._http.get(self._health).content, type=_Health).overdue_loops
        except (self._errors, msgspec.MsgspecError):
            return {}

    def nodes(self) -> Nodes | None:
        body = self.body()
        return None if body is None else msgspec.json.decode(body, type=Nodes)


def _introduce(options: UpOptions, plan: Plan, found: Home, local: LocalCluster) -> None:
    """Prints what starts, and the paths and URLs."""
    _say(f"Headroom: a local cluster with this machine ({local.node_name}) and {plan.simulated_nodes} simulated nodes")
    for index, line in enumerate(profiles.described(plan.profile)):
        _say(f"{f'profile {plan.profile.name}:' if index == 0 else '':16} {line}")
    if plan.simulated_nodes:
        usage = f"trace {options.trace}" if options.trace else "generated curves (diurnal, bursty, batch)"
        _say(f"simulated usage: {usage}, time runs x{plan.speed:g}")
    for name, wanted, got in (
        ("--port", options.ports.api, plan.ports.api),
        ("--manager-port", options.ports.manager, plan.ports.manager),
        ("--agent-port", options.ports.agent, plan.ports.agent),
    ):
        if wanted not in (0, got):
            _say(f"port {wanted} ({name}) is in use, using {got} instead")
    _say(f"pods:            {_containment(found)}")
    if plan.cloud is not None:
        _say(f"cloud:           {plan.cloud.file} (simulated; changes count while it runs)")
    policy = msgspec.json.encode(profiles.colocation_config(plan.profile)).decode()
    _say(f"configuration:   ConfigMap {profiles.config_map_key()}: {policy}")
    _say(f"state and logs:  {found.directory}{'' if options.keep else ' (removed at the end; --keep DIR keeps it)'}")
    _say(f"kubeconfig:      {found.kubeconfig}")
    _say(f"                 export KUBECONFIG={found.kubeconfig}")
    _say(f"agent:           {local.agent_url}/docs")
    _say(f"manager:         {local.manager_url}/")


def _containment(found: Home) -> str:
    try:
        held = CgroupContainment(home.CGROUP_ROOT, found.cgroup_parent)
    except OSError as error:
        return f"run as plain process trees without limits, since cgroups cannot be made here ({error})"
    return f"run as real processes in {held.description} below {found.cgroup_parent}"


def _ports(wanted: Ports) -> Ports:
    return Ports(
        api=ports.free(wanted.api),
        manager=ports.free(wanted.manager),
        agent=ports.free(wanted.agent),
        webhook=ports.free(wanted.webhook),
    )


def _say(line: str) -> None:
    """Writes to stderr, so that stdout holds only the table or the JSON."""
    print(line, file=sys.stderr, flush=True)
