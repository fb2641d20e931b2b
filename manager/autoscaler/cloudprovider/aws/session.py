"""The connection to AWS: the only module that imports the library, on first use."""

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from manager.autoscaler.cloudprovider.aws import NAME, failures
from manager.autoscaler.cloudprovider.aws.config import AwsConfig
from manager.autoscaler.cloudprovider.aws.messages import Call, Reply
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused, Unavailable
from shared.clock import Clock
from shared.errors import InvalidInput

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
READ_ATTEMPTS = 2  # writes are tried once: without an answer, a write may still have taken effect
ROLE_SECONDS = 3600
RENEWED_BEFORE_SECONDS = 600.0
RENEWED_AGAIN_SECONDS = 60.0  # after a failure
PROFILE = "AWS_PROFILE"
REGION = "AWS_REGION"  # Kubernetes' credential mechanisms set it, and the library does not read it

logger = logging.getLogger(__name__)


class Session:
    """Calls from any thread, each of which ends within the timeout.

    No call waits for another thread's call, except for the very first role. `_renewing` is taken before `_making`.
    """

    def __init__(self, config: AwsConfig, clock: Clock) -> None:
        """Raises InvalidInput if the library is not installed, or knows no region or no such profile."""
        try:
            import boto3
            import botocore.config
            import botocore.exceptions
        except ImportError as error:
            raise InvalidInput(
                source="--cloud-provider",
                field=NAME,
                value=NAME,
                problem="it needs boto3, which is not installed: pip install 'headroom-k8s[aws]'",
            ) from error
        self._boto3 = boto3
        self._botocore = botocore
        self._config = config
        self._clock = clock
        self._own = self._opened()
        self._region = config.region or os.environ.get(REGION) or self._own.region_name
        if not self._region:
            raise InvalidInput(
                source="--cloud-config", field="region", value="", problem=f"no region is set here or in {REGION}"
            )
        self._renewing = threading.Lock()
        self._making = threading.Lock()  # of the fields below; the library makes clients for one thread at a time
        self._clients: dict[tuple[str, bool], Any] = {}
        self._assumed: Any = None
        self._until = self._renewed_at = float("-inf")  # of the assumed role

    def ask(self, call: Call, group: str = "", /, **request: object) -> Reply:
        """The answer. Raises Refused, Unavailable."""
        exceptions = self._botocore.exceptions
        try:
            client = self._client(call.service, writes=call.writes)
            reply: Reply = getattr(client, self._botocore.xform_name(call.operation))(**request)
            return reply
        except exceptions.ClientError as error:
            raise _answered(error.response, call.operation, group) from error
        except (exceptions.ParamValidationError, exceptions.NoCredentialsError) as error:  # never sent
            raise Refused(NAME, group, f"{call.operation}: {error}") from error
        except exceptions.BotoCoreError as error:
            raise Unavailable(NAME, group, f"{call.operation}: {error}") from error

    def close(self) -> None:
        with self._making:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _client(self, service: str, *, writes: bool) -> Any:
        if self._config.assume_role_arn and self._is_due():
            self._renew_once()
        key = service, writes
        with self._making:
            if key not in self._clients:
                session = self._assumed or self._own
                self._clients[key] = self._make_client(session, service, attempts=1 if writes else READ_ATTEMPTS)
            return self._clients[key]

    def _is_due(self) -> bool:
        return self._clock.now() >= self._renewed_at

    def _renew_once(self) -> None:
        """While another thread renews the role, the old credentials are used, as long as they are valid."""
        if not self._renewing.acquire(blocking=self._clock.now() >= self._until):
            return
        try:
            if self._is_due():
                self._renew()
        finally:
            self._renewing.release()

    def _renew(self) -> None:
        """Assumes the role again. If that fails, the old credentials are used as long as they are valid."""
        exceptions = self._botocore.exceptions
        try:
            assumed = self._as_role()
        except (exceptions.BotoCoreError, exceptions.ClientError) as error:
            now = self._clock.now()
            if now >= self._until:
                raise
            self._renewed_at = min(now + RENEWED_AGAIN_SECONDS, self._until)
            logger.warning("the credentials of the role were not renewed: %s", error, extra={"provider": NAME})
            return
        with self._making:  # another thread may be within a call: its client closes after its last use
            self._clients.clear()
            self._assumed = assumed

    def _as_role(self) -> Any:
        answer = self._make_client(self._own, "sts", attempts=READ_ATTEMPTS).assume_role(
            RoleArn=self._config.assume_role_arn,
            RoleSessionName=f"headroom-{int(self._clock.now() * 1e9)}",
            DurationSeconds=ROLE_SECONDS,
        )
        given = answer["Credentials"]
        self._until = given["Expiration"].timestamp()
        self._renewed_at = self._until - RENEWED_BEFORE_SECONDS
        return self._opened(
            aws_access_key_id=given["AccessKeyId"],
            aws_secret_access_key=given["SecretAccessKey"],
            aws_session_token=given["SessionToken"],
        )

    def _opened(self, **settings: str | None) -> Any:
        try:
            return self._boto3.Session(**settings)
        except self._botocore.exceptions.BotoCoreError as error:
            raise InvalidInput(
                source="environment", field=PROFILE, value=os.environ.get(PROFILE, ""), problem=str(error)
            ) from error

    def _make_client(self, session: Any, service: str, *, attempts: int) -> Any:
        settings = self._botocore.config.Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_extra="headroom",
        )
        endpoint = self._config.endpoint_url or None
        return session.client(service, region_name=self._region, endpoint_url=endpoint, config=settings)


def _answered(response: Mapping[str, Any], operation: str, group: str) -> ProviderError:
    error = response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return failures.provider_error(code, status, f"{operation}: {code}: {message}", group)
