"""The Vertical Pod Autoscaler's own decaying histograms, by a program built once from its Go module."""

import os
import subprocess
from pathlib import Path

from tests.apiserver import binaries
from tests.apiserver.binaries import Tool, Unavailable

VPA = Tool("histograms", ".", Path(__file__).with_name("vpa"))


def cpu_seconds(histograms: int, percentiles: int, rounds: int) -> tuple[float, float]:
    """What one sample into each of the histograms takes, and so many percentiles of each, the best of the rounds.

    Raises Unavailable without Go.
    """
    program = binaries.built_once(VPA, os.environ)
    command = [str(program), str(histograms), str(percentiles), str(rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"the Vertical Pod Autoscaler's histograms do not run: {error}") from error
    updates, reads, _ = done.stdout.split()
    return float(updates), float(reads)
