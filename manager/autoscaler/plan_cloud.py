"""The cloud for plan requests, which run beside the loop: the loop's last observation, and reads of their own.

Locks: the loop and the node deletions share the cloud lock, which stands for the guard's one thread. A plan request
never takes it: it reads the observation without a lock, and asks the provider in its own thread, within its own
deadline. So neither waits for the other, however slow the cloud is, and there is no lock order to keep.
"""

from manager.autoscaler.cloudprovider.contract import Provider
from manager.autoscaler.cloudprovider.deadline import Caller
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.cloudprovider.reader import CloudReader


class PlanCloud(CloudReader):
    """See `context.ObservedCloud`. Serves one plan request at a time; each starts with `begin`."""

    def __init__(self, provider: Provider, guard: Guard, *, deadline_seconds: float) -> None:
        """All provider calls of one plan request end within `deadline_seconds`."""
        caller = Caller(provider.name, deadline_seconds)
        super().__init__(provider, caller)
        self._guard = guard
        self._deadline_seconds = deadline_seconds
        self._observed = CloudObservation()

    def begin(self) -> None:
        """Switches to the last observation. Raises ProviderError if there is none."""
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
