"""`headroom up`: starts the local cluster, shows its state, and stops it."""

import contextlib
import dataclasses
import logging
import os
import queue
import sys
import threading
import time

import msgspec

from deploy.local import cloud, home, ports, private, story
from deploy.local import profile as profiles
from deploy.local.cloud import LocalCloud
from deploy.local.cluster import LocalCluster
from deploy.local.home import Home
from deploy.local.kubelet.containment import CgroupContainment
from deploy.local.options import ClusterKind, LoopbackPorts, SchedulerKind, UpOptions
from deploy.local.simulated import workloads
from deploy.manager_api import ManagerApi
from deploy.top import freshness, progress
from deploy.top.command import PATH, Following, printed_table
from manager.nodeside.answers import Explained, Nodes
from shared import durations, termination
from shared.errors import HeadroomError, InvalidInput

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
PLAIN_SECONDS = 15.0
LAST_ANSWER_SECONDS = 10.0
BUSY_POD = f"{workloads.NAMESPACE}/burner"


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
        home.clear(found.claim)


def _up(options: UpOptions, found: Home, stop: threading.Event) -> int:
    free = LoopbackPorts(*map(ports.free, dataclasses.astuple(options.ports)))
    wished, options = options.ports, dataclasses.replace(options, ports=free)
    chosen_cloud = cloud.choose(options.cloud, found)
    voice = _Voice()
    local = LocalCluster(found, options, chosen_cloud, voice.say)
    local.write_files()
    private.write(found.manager_file, local.manager_url)
    _introduce(options, wished, chosen_cloud, found, local)
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
    manager = ManagerApi(local.manager_url)
    deadline = None if options.for_seconds is None else time.monotonic() + options.for_seconds
    view = _View(options, local, manager)
    if sys.stdout.isatty() and not options.as_json:
        _show_live(view, local, stop, deadline, voice)
    else:
        _show_plainly(view, stop, deadline, voice, with_table=not options.as_json)
    return _print_json(manager) if options.as_json else 0


class _View:
    """The table's content: the manager's last answer, and what is wrong with it."""

    def __init__(self, options: UpOptions, local: LocalCluster, manager: ManagerApi) -> None:
        self._local = local
        self.manager = manager
        self.simulated = options.nodes
        self._report_interval_seconds = profiles.PROFILES[options.profile].agent["reportingInterval"]
        self._following = Following(lambda: manager.read(PATH, Nodes))
        self._news: Nodes | None = None
        self._story = story.begin(local.busy_node, BUSY_POD, options.nodes) if local.busy_node else None
        if self._story is not None:
            next(self._story)

    def notices(self) -> list[str]:
        """The news since the last call."""
        new = self._local.notices.new() if self._local.notices is not None else []
        if line := self._told():
            new.append(line)
        return [f"{time.strftime('%H:%M:%S')}  {notice}" for notice in new]

    def _told(self) -> str:
        """The next line of the story, if anything new has happened in it."""
        if self._story is None or self._news is None:
            return ""
        try:
            explained = self.manager.read(f"{PATH}/{self._local.busy_node}", Explained)
            return self._story.send(
                story.Scene(self._news, explained.prediction.promises if explained.prediction else ())
            )
        except HeadroomError:
            return ""
        except StopIteration:
            self._story = None
            return ""

    def look(self) -> tuple[Nodes | None, float, list[str]]:
        """The newest answer, its age in seconds, and why it is older than it looks, or what takes too long."""
        answer, silent_seconds, problem = self._following.look()
        self._news = None if problem else answer
        if answer is None:
            return None, silent_seconds, []
        newest = freshness.newest_report_seconds(answer, silent_seconds)
        stale = freshness.stale_data(silent_seconds, newest, self._report_interval_seconds)
        return answer, silent_seconds, [*stale, *freshness.late_loops(self.manager)]


def _show_live(
    view: _View, local: LocalCluster, stop: threading.Event, deadline: float | None, voice: "_Voice"
) -> None:
    from deploy.top import keys
    from deploy.top.screen import Frame, TopApp  # a terminal interface takes a while to load

    def look() -> Frame:
        answer, silent_seconds, warnings = view.look()
        notices = [*voice.collected(), *view.notices()]
        waiting = progress.starting(answer, view.simulated)
        return Frame(answer, silent_seconds, warnings, notices, _is_over(stop, deadline), waiting)

    voice.is_live = True
    try:
        places = (f"page {local.manager_url}/", f"export KUBECONFIG={local.kubeconfig}")
        TopApp(look, keys.of_manager(view.manager), this_node=local.node_name, places=places).run()
    finally:
        voice.is_live = False
        for line in voice.collected():  # what the table has not shown
            _say(line)


def _show_plainly(
    view: _View, stop: threading.Event, deadline: float | None, voice: "_Voice", *, with_table: bool
) -> None:
    """Prints the table from time to time, and at once when something becomes wrong with it; without the table, what
    nodes still wait for.
    """
    table_at = 0.0
    warned: list[str] = []
    while not _is_over(stop, deadline):
        for notice in view.notices():
            voice.say(notice)
        answer, silent_seconds, warnings = view.look()
        if answer is not None and (time.monotonic() >= table_at or bool(warned) != bool(warnings)):
            waiting = progress.starting(answer, view.simulated)
            if with_table:
                print(printed_table(answer, silent_seconds, warnings, waiting), flush=True)
            elif waiting:
                voice.say(waiting)
            table_at = time.monotonic() + PLAIN_SECONDS
        warned = warnings
        _wait(stop, deadline)


def _is_over(stop: threading.Event, deadline: float | None) -> bool:
    return stop.is_set() or (deadline is not None and time.monotonic() >= deadline)


def _wait(stop: threading.Event, deadline: float | None) -> None:
    stop.wait(LOOK_SECONDS if deadline is None else max(0.0, min(LOOK_SECONDS, deadline - time.monotonic())))


def _print_json(manager: ManagerApi) -> int:
    deadline = time.monotonic() + LAST_ANSWER_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(HeadroomError):
            answer = manager.get(PATH)
            if answer.is_success:
                print(msgspec.json.format(answer.content, indent=2).decode())
                return 0
        time.sleep(0.2)
    _say("the manager does not answer")
    return 1


def _introduce(
    options: UpOptions, wished: LoopbackPorts, chosen_cloud: LocalCloud | None, found: Home, local: LocalCluster
) -> None:
    """Prints what starts, and the paths and URLs."""
    profile = profiles.PROFILES[options.profile]
    _say(f"Headroom: a local cluster with this machine ({local.node_name}) and {options.nodes} simulated nodes")
    hour = profile.agent["predictionHour"]
    lasting = f"an hour of the prediction takes {durations.render(hour)}, a day {durations.render(24 * hour)}"
    _say(f"{f'profile {options.profile}:':16} {lasting}")
    if options.nodes:
        usage = f"trace {options.trace}" if options.trace else "generated curves (diurnal, bursty, batch)"
        _say(f"simulated usage: {usage}, time runs x{options.speed:g}")
    for name, wanted, got in (
        ("--port", wished.api, options.ports.api),
        ("--manager-port", wished.manager, options.ports.manager),
        ("--agent-port", wished.agent, options.ports.agent),
    ):
        if wanted not in (0, got):
            _say(f"port {wanted} ({name}) is in use, using {got} instead")
    _say(f"pods:            {_containment(found)}")
    if chosen_cloud is not None:
        _say(f"cloud:           {chosen_cloud.file} (simulated; changes count while it runs)")
    policy = msgspec.json.encode(profiles.colocation_config(profile)).decode()
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


def _say(line: str) -> None:
    """Writes to stderr, so that stdout holds only the table or the JSON."""
    print(line, file=sys.stderr, flush=True)


class _Voice:
    """Where lines about the cluster go: to stderr, or to the live table while there is one."""

    def __init__(self) -> None:
        self.is_live = False
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def say(self, line: str) -> None:
        if self.is_live:
            self._lines.put(line)
        else:
            _say(line)

    def collected(self) -> list[str]:
        """The lines for the table since the last call."""
        return [self._lines.get() for _ in range(self._lines.qsize())]
