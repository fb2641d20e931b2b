"""Why a promise is likely to break: what is known of a node by then. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from shared.api.nodemetric import SurpriseCause

CAUSES: Final = tuple(SurpriseCause)  # by the number that is kept
DAYS = 7
GROWING = 0.9  # correlation of a week's daily peaks with their days
TOGETHER = 0.9  # the node's peak of a week as a share of the sum of pods' own


def causes(daily: Floats, together: Sequence[Floats]) -> Rows:
    """Numbers of `CAUSES`, shape (resources, nodes).

    `daily` are the nodes' daily peaks, today's first, shape (nodes, days, resources); `together`, by resource, how much
    of their own peaks the pods reach at the same time.
    """
    week = daily[:, 1 : DAYS + 1]
    rising = np.arange(DAYS)[::-1, np.newaxis] - (DAYS - 1) / 2
    apart = week - week.mean(axis=1, keepdims=True)
    spread = np.sqrt((apart**2).sum(axis=1) * (rising**2).sum())
    grows = (apart * rising).sum(axis=1) >= GROWING * np.where(spread > 0, spread, np.inf)
    grows &= (week > 0).all(axis=1)
    common = np.stack(together) >= TOGETHER
    found: Rows = np.where(common, CAUSES.index(SurpriseCause.CORRELATED), CAUSES.index(SurpriseCause.BURSTING))
    return np.where(grows.T, CAUSES.index(SurpriseCause.GROWING), found)
