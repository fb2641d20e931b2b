"""AWS as a cloud provider."""

from dataclasses import replace

from manager.autoscaler.cloudprovider.aws import config
from manager.autoscaler.cloudprovider.aws.discovery import FLAG, parse_discovery
from manager.autoscaler.cloudprovider.aws.options import AwsOptions
from manager.autoscaler.cloudprovider.aws.provider import AwsProvider, GroupSelection
from manager.autoscaler.cloudprovider.aws.session import Session
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from shared.errors import InvalidInput


def make(request: ProviderRequest) -> AwsProvider:
    file = config.load(request.config)
    session = Session(file, request.clock)
    groups = request.groups if request.loops is not None else replace(request.groups, enforced=())
    discovered = parse_discovery(groups.discovery)
    if discovered and file.discover:
        problem = f"{FLAG} says which groups are managed; groups of other tags cannot be told from them"
        raise InvalidInput(source=str(request.config), field="discover", value=dict(file.discover), problem=problem)
    fleets = {name: each for name, each in groups.own_options.items() if isinstance(each, AwsOptions)}
    wanted = GroupSelection(
        groups.listed,
        discovered or ((file.discover,) if file.discover else ()),
        fleets,
        groups.enforced,
        groups.minds_drift,
        manages_discovered=bool(discovered),
    )
    return AwsProvider(session.ask, wanted, request.clock, close=session.close)


PLUGIN = ProviderPlugin(
    make=make, needs_config=False, has_prices=False, discovers_groups=True, group_options=AwsOptions
)
