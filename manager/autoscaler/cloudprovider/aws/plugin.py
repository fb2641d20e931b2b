"""AWS as a cloud provider."""

from dataclasses import replace

from manager.autoscaler.cloudprovider.aws import config
from manager.autoscaler.cloudprovider.aws.options import AwsOptions
from manager.autoscaler.cloudprovider.aws.provider import AwsProvider, GroupSelection
from manager.autoscaler.cloudprovider.aws.session import Session
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest


def make(request: ProviderRequest) -> AwsProvider:
    file = config.load(request.config)
    session = Session(file, request.clock)
    groups = request.groups if request.loops is not None else replace(request.groups, enforced=())
    fleets = {name: each for name, each in groups.own_options.items() if isinstance(each, AwsOptions)}
    wanted = GroupSelection(groups.listed, file.discover, fleets, groups.enforced)
    return AwsProvider(session.ask, wanted, request.clock, close=session.close)


PLUGIN = ProviderPlugin(make=make, needs_config=False, has_prices=False, group_options=AwsOptions)
