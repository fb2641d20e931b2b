"""Run it with `pytest` where Headroom is installed."""

from spot_first import SpotFirst

from headroom_api.expanders import AutoscalerSettings, ExpanderContext, Machine, Option

SPOT = Option("spot", 2, Machine({"cpu": 4000}, {"karpenter.sh/capacity-type": "spot"}), ())
ON_DEMAND = Option("on-demand", 2, Machine({"cpu": 4000}, {"karpenter.sh/capacity-type": "on-demand"}), ())


def test_spot_machines_come_first() -> None:
    expander = SpotFirst(AutoscalerSettings())
    assert expander.best_options([ON_DEMAND, SPOT], ExpanderContext()) == [SPOT]


def test_without_spot_machines_all_options_stay_in() -> None:
    expander = SpotFirst(AutoscalerSettings())
    assert expander.best_options([ON_DEMAND], ExpanderContext()) == [ON_DEMAND]
