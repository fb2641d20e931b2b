"""`headroom up`: starts the local cluster, shows its state, and stops it."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
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
from deploy.top import lines
from deploy.top.nodes import Sorting, chosen
from manager.nodeside.answers import Nodes
from shared import termination
from shared.errors import HeadroomError, InvalidInput

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
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
    voice = _Voice()
    local = LocalCluster(found, plan, voice.say)
    local.write_files()
    _introduce(options, plan, found, local)
    try:
        local.start(stop.is_set)
        return _watch(options, local, stop, voice)
    except HeadroomError as error:
        _say(str(error))
        return 0 if stop.is_set() else 1
    finally:
        _say("stopping")
        local.close()


def _watch(options: UpOptions, local: LocalCluster, stop: threading.Event, voice: "_Voice") -> int:
    """Shows the table until the time is over or Ctrl-C; then prints its last state for scripts."""
    reader = _Reader(local.manager_url)
    if options.as_json:
        stop.wait(options.for_seconds)
        return _print_json(reader)
    deadline = None if options.for_seconds is None else time.monotonic() + options.for_seconds
    view = _View(options, local, reader)
    if sys.stdout.isatty():
        _show_live(view, local, stop, deadline, voice)
    else:
        _show_plainly(view, stop, deadline, voice)
    return 0


class _View:
    """What the table shows: the manager's last answer, and what is wrong with it."""

    def __init__(self, options: UpOptions, local: LocalCluster, reader: "_Reader") -> None:
        self._local = local
        self._reader = reader
        self._report_interval_seconds = profiles.PROFILES[options.profile].reporting_interval_seconds
        self._answered_at = 0.0
        self.answer: Nodes | None = None

    def notices(self) -> list[str]:
        """What has happened since the last call."""
        new = self._local.notices.new() if self._local.notices is not None else []
        return [f"{time.strftime('%H:%M:%S')}  {notice}" for notice in new]

    def ask(self) -> None:
        """Keeps the last answer where the manager gives none."""
        if fresh := self._reader.nodes():
            self.answer, self._answered_at = fresh, time.monotonic()

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self._answered_at

    def warnings(self) -> list[str]:
        """Why the table is older than it looks, and what takes too long."""
        if self.answer is None:
            return []
        newest = freshness.newest_report_seconds([self.answer.report_seconds(row) for row in self.answer.nodes])
        seen = Seen(
            silent_seconds=self.silent_seconds,
            report_seconds=None if newest is None else newest + self.silent_seconds,
            report_interval_seconds=self._report_interval_seconds,
        )
        return [*freshness.warnings(seen), *late_loops(self._reader.overdue())]


def late_loops(overdue: Mapping[str, float]) -> list[str]:
    """What the manager's loops that take too long are said to do, from their time in seconds."""
    return [f"the {loop}'s round has been going on for {seconds:.0f} s" for loop, seconds in overdue.items()]


def _show_live(
    view: _View, local: LocalCluster, stop: threading.Event, deadline: float | None, voice: "_Voice"
) -> None:
    from deploy.top.screen import Frame, TopApp  # a terminal interface takes a while to load

    def look() -> Frame:
        view.ask()
        is_over = stop.is_set() or (deadline is not None and time.monotonic() >= deadline)
        notices = [*voice.collected(), *view.notices()]
        return Frame(view.answer, view.silent_seconds, view.warnings(), notices, is_over)

    with voice.collecting():
        TopApp(look, this_node=local.node_name).run()


def _show_plainly(view: _View, stop: threading.Event, deadline: float | None, voice: "_Voice") -> None:
    """Prints the table from time to time, and at once when something becomes wrong with it."""
    table_at = 0.0
    warned: list[str] = []
    while not stop.is_set() and (deadline is None or time.monotonic() < deadline):
        for notice in view.notices():
            voice.say(notice)
        view.ask()
        warnings = view.warnings()
        if view.answer is not None and (time.monotonic() >= table_at or bool(warned) != bool(warnings)):
            print(printed(view.answer, view.silent_seconds, warnings), flush=True)
            table_at = time.monotonic() + PLAIN_SECONDS
        warned = warnings
        stop.wait(LOOK_SECONDS if deadline is None else max(0.0, min(LOOK_SECONDS, deadline - time.monotonic())))


def printed(answer: Nodes, silent_seconds: float, warnings: Sequence[str]) -> str:
    """The whole table, with reasons in full, and an empty line."""
    shown = lines.columns(answer, lines.WIDE, silent_seconds, cut=False)
    rows = [lines.line(shown, row) for row in chosen(answer.nodes, Sorting.NAME)]
    stale = [f"STALE: {warning}" for warning in warnings]
    return "\n".join([lines.header(shown), *rows, f"{time.strftime('%H:%M:%S')}  {answer.cluster}", *stale, ""])


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
        # Over plain HTTP there is nothing to verify, and reading every trusted certificate takes 40 ms of CPU.
        self._http = httpx.Client(timeout=REQUEST_SECONDS, verify=False)
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


class _Voice:
    """Where lines about the cluster go: to stderr, or to the live table while there is one."""

    def __init__(self) -> None:
        self._lines: list[str] | None = None
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        with self._lock:
            if self._lines is None:
                _say(line)
            else:
                self._lines.append(line)

    def collected(self) -> list[str]:
        """What has been said since the last call."""
        with self._lock:
            lines, self._lines = self._lines or [], None if self._lines is None else []
        return lines

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """The live table has the terminal; what it has not shown is written after it."""
        self._lines = []
        try:
            yield
        finally:
            left, self._lines = self._lines, None
            for line in left:
                _say(line)
