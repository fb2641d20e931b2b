"""Simulated nodes with their agents: `python -m deploy.local.simulated`."""

import sys
import threading
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from agent.settings import AgentSettings
from deploy.local import daemon
from deploy.local.daemon import LocalSettings
from deploy.local.simulated import traces
from deploy.local.simulated.fleet import SimulatedFleet, Simulation
from shared import settings
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.telemetry import Loops


class SimulationSettings(LocalSettings, frozen=True):
    """Simulated nodes with their agents."""

    state_dir: Annotated[str, Meta(description="the agents' checkpoints")] = "/var/lib/headroom/simulated"
    nodes: Annotated[int, Meta(ge=0, le=1000, description="number of nodes, beside those of a simulated cloud")] = 5
    speed: Annotated[float, Meta(gt=0, description="how much faster than the clock simulated time runs")] = 1.0
    trace: Annotated[str, Meta(description="csv file (.gz) whose series the pods follow")] = ""
    agent_service_account: Annotated[str, Meta(description="who the agents are; empty: the kubeconfig's user")] = ""
    agent_config: Annotated[str, Meta(description="YAML file with the agents' settings")] = ""


def run(chosen: SimulationSettings, connection: Connection, ended: threading.Event) -> None:
    """Runs the nodes until `ended` is set. Raises InvalidInput for an invalid trace or agents' settings."""
    policy = settings.load(
        AgentSettings,
        program="agent-config",
        description="",
        argv=["--config", chosen.agent_config] if chosen.agent_config else [],
        environment={},
    )
    simulation = Simulation(
        node_count=chosen.nodes,
        speed=chosen.speed,
        trace=traces.load(Path(chosen.trace)) if chosen.trace else (),
        policy=policy,
        state_dir=Path(chosen.state_dir),
        connection=connection,
        agent_service_account=chosen.agent_service_account,
    )
    # Agents have thousands of threads: with 5 ms between two turns, hundreds of them do nothing but wake up.
    sys.setswitchinterval(0.1)
    client = Client(connection, "headroom-simulated", stop=ended)
    loops = Loops()
    fleet = SimulatedFleet(simulation, client, SystemClock())
    fleet.start(loops, ended)
    ended.wait()
    loops.close()
    fleet.close()


if __name__ == "__main__":
    sys.exit(daemon.main("deploy.local.simulated", SimulationSettings, run))
