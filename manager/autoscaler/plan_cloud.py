"""The cloud for questions, which are asked beside the rounds: what a round observed last, and reads of its own.

Locks: rounds and departures share the cloud's lock, which stands for the guard's one thread. A question takes none of
that: it reads what was observed without a lock, and asks the provider in a thread of its own, within a deadline of its
own. So neither waits for the other, however slow the cloud is, and there is no order in which locks are to be taken.
"""

from manager.autoscaler.cloudprovider.contract import Provider
from manager.autoscaler.cloudprovider.deadline import Caller
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.cloudprovider.reader import CloudReader


class PlanCloud(CloudReader):
    """See `context.Cloud`. For one question at a time, each of which begins with `begin`."""

    def __init__(self, provider: Provider, guard: Guard, *, deadline_seconds: float) -> None:
        """All that one question asks the provider is over within `deadline_seconds`."""
        caller = Caller(provider.name, deadline_seconds)
        super().__init__(provider, caller)
        self._guard = guard
        self._deadline_seconds = deadline_seconds
        self._observed = CloudObservation()

    def begin(self) -> None:
        """From now on all is as it was last observed. Raises ProviderError where nothing is."""
        observed = self._guard.observed
        if observed is not self._observed:
            self.forget()
        self._observed = observed
        self._caller.end_within(self._deadline_seconds)

    @property
    def observed(self) -> CloudObservation:
        return self._observed

    def close(self) -> None:
        self._caller.close()
