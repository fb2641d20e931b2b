"""For expanders: the protocol, the options that an expander chooses from, and the settings that it is created with."""

from manager.autoscaler.expander.contract import Expander, ExpanderContext
from manager.autoscaler.expander.option import Option
from manager.autoscaler.pricing.model import Machine
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import HeadroomError, InvalidInput

__all__ = ["AutoscalerSettings", "Expander", "ExpanderContext", "HeadroomError", "InvalidInput", "Machine", "Option"]
