"""Simulated nodes with their agents: `python -m deploy.local.simulated`."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agent.settings import AgentSettings
from deploy.local.simulated import traces
from deploy.local.simulated.fleet import SimulatedFleet, Simulation
from shared import settings, telemetry, termination
from shared.clock import SystemClock
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.telemetry import Loops

logger = logging.getLogger(__name__)


class SimulationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of nodes, their behavior, and their agents' start settings."""

    kubeconfig: Annotated[str, Meta(description="kubeconfig file")] = ""
    state_dir: Annotated[str, Meta(description="the agents' checkpoints")] = "/var/lib/headroom/simulated"
    nodes: Annotated[int, Meta(ge=0, le=1000, description="number of nodes, beside those of a simulated cloud")] = 5
    speed: Annotated[float, Meta(gt=0, description="how much faster than the clock simulated time runs")] = 1.0
    trace: Annotated[str, Meta(description="csv file (.gz) whose series the pods follow")] = ""
    agent_service_account: Annotated[str, Meta(description="who the agents are; empty: the kubeconfig's user")] = ""
    agent_config: Annotated[str, Meta(description="YAML file with the agents' settings")] = ""
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level shown")] = "info"


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs until SIGTERM or SIGINT. Returns 0 after a signal; 2 for invalid settings or an invalid trace."""
    try:
        chosen = settings.load(
            SimulationSettings,
            program="python -m deploy.local.simulated",
            description="Simulated nodes with their agents",
            argv=argv,
            environment=environment,
        )
        connection = config.discover(chosen.kubeconfig or None)
        simulation = _simulation(chosen, connection)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    telemetry.configure_logging(level=chosen.log_level)
    logger.info("starting", extra=settings.shown(chosen))
    ended = termination.event()
    client = Client(connection, "headroom-simulated", stop=ended)
    loops = Loops()
    fleet = SimulatedFleet(simulation, client, SystemClock())
    fleet.start(loops, ended)
    ended.wait()
    loops.close()
    fleet.close()
    return 0


def _simulation(chosen: SimulationSettings, connection: Connection) -> Simulation:
    policy = settings.load(
        AgentSettings,
        program="agent-config",
        description="",
        argv=["--config", chosen.agent_config] if chosen.agent_config else [],
        environment={},
    )
    return Simulation(
        node_count=chosen.nodes,
        speed=chosen.speed,
        trace=traces.load(Path(chosen.trace)) if chosen.trace else (),
        policy=policy,
        state_dir=Path(chosen.state_dir),
        connection=connection,
        agent_service_account=chosen.agent_service_account,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
