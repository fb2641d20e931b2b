"""Writes that admission webhooks are asked about.

A write that no webhook wants to see is decided in one turn of the event loop, like all others. Where one does, its
object is formed, shown to the mutating webhooks one after the other, checked, shown to the validating ones at once,
and then decided on, unless what it replaces has moved on meanwhile: then all of this begins anew. While a webhook
thinks, the server does other things, and may well be called by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from deploy.local.apiserver import admissionreview, bodies, patching, status, structs
from deploy.local.apiserver.admissionreview import InvalidAnswer, Unreadable, Verdict, denial, question
from deploy.local.apiserver.authentication import USER
from deploy.local.apiserver.callouts import CallFailed, Callouts, NoClient
from deploy.local.apiserver.decoding import How
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.kinds import Kind, blank
from deploy.local.apiserver.objects import JsonObject, copy, decode, dig
from deploy.local.apiserver.requests import Request
from deploy.local.apiserver.store import Store, object_key
from deploy.local.apiserver.webhooks import Asked, Registered, Webhook
from deploy.local.apiserver.writes import Draft, Mutate, Outcome, Writes

logger = logging.getLogger(__name__)

_ATTEMPTS = 10  # at an object that others write while webhooks think
Revise = Callable[[JsonObject], JsonObject]  # a patched object as its kind has it


class Reviewed:
    """Create, update and delete as clients ask for them."""

    def __init__(self, store: Store, writes: Writes, registered: Registered) -> None:
        self._store = store
        self._writes = writes
        self._registered = registered
        self._callouts = Callouts(store)

    def close(self) -> None:
        self._callouts.close()

    async def create(self, request: Request, kind: Kind, namespace: str, obj: JsonObject, how: How) -> Outcome:
        """Raises StatusError as Writes.create does, and what webhooks say."""
        if not self._registered.concern(kind):
            return self._writes.create(kind, namespace, obj, how)
        unnamed = not dig(obj, "metadata", "name")
        draft = self._writes.draft_new(kind, namespace, obj, how)
        asked = _asked(request, "CREATE", kind, kind, how, namespace, "" if unnamed else draft.name)
        with _warning(asked):
            await self._mutate_draft(asked, draft)
            settled = self._writes.settled(draft)
            await self._validate(replace(asked, name=settled.name), settled.obj, None)
            return _with_warnings(self._writes.commit(settled), asked)

    async def update(
        self, request: Request, kind: Kind, namespace: str, name: str, mutate: Mutate, how: How, *,
        replacing: bool = False,
    ) -> Outcome:  # fmt: skip
        """Raises StatusError as Writes.update does, and what webhooks say."""
        if not self._registered.concern(kind):
            return self._writes.update(kind, namespace, name, mutate, how, replacing=replacing)
        asked = _asked(request, "UPDATE", kind, kind, how, namespace, name)
        with _warning(asked):
            for _ in range(_ATTEMPTS):
                draft = self._writes.draft_change(kind, namespace, name, mutate, how, replacing=replacing)
                await self._mutate_draft(asked, draft)
                settled = self._writes.settled(draft)
                await self._validate(asked, settled.obj, draft.old)
                if self._store.latest(kind.resource, object_key(namespace, name)) is draft.record:
                    return _with_warnings(self._writes.commit(settled), asked)
            raise status.conflict(kind.group, kind.plural, name)

    async def delete(
        self, request: Request, kind: Kind, namespace: str, name: str, wanted: Deletion, how: How, *,
        of_many: bool = False,
    ) -> Outcome:  # fmt: skip
        """Raises StatusError as Writes.delete does, and what webhooks say; `of_many`: no object's path was called."""
        if not self._registered.concern(kind):
            return self._writes.delete(kind, namespace, name, wanted, how)
        asked = _asked(request, "DELETE", kind, kind, how, namespace, "" if of_many else name)
        with _warning(asked):
            for _ in range(_ATTEMPTS):
                # What cannot be deleted anyhow, nobody is asked about.
                self._writes.delete(kind, namespace, name, wanted, replace(how, dry_run=True))
                record = self._store.latest(kind.resource, object_key(namespace, name))
                old = record.load() if record is not None else None
                await self._mutate(asked, None, old, _unchangeable)
                await self._validate(asked, None, old)
                if self._store.latest(kind.resource, object_key(namespace, name)) is record:
                    return _with_warnings(self._writes.delete(kind, namespace, name, wanted, how), asked)
            raise status.conflict(kind.group, kind.plural, name)

    async def sent(
        self, request: Request, kind: Kind, resource: Kind, how: How, namespace: str, name: str, obj: JsonObject,
        old: JsonObject | None = None,
    ) -> tuple[JsonObject, Sequence[str]]:  # fmt: skip
        """What is done, and not stored as such: a binding, a scale. As webhooks leave it, and what they warn of.

        Raises StatusError.
        """
        if not self._registered.concern(resource):
            return obj, ()
        operation = "CREATE" if request.method == "POST" else "UPDATE"
        meta = obj.get("metadata") or {}
        obj = obj | {"metadata": meta | {"namespace": namespace} if kind.namespaced else meta}
        if old is None:
            self._writes.track_sent(kind, obj, how)
        asked = _asked(request, operation, kind, resource, how, namespace, name)

        def revise(patched: JsonObject) -> JsonObject:
            decoded = structs.decode(kind.struct, {"metadata": {}} | patched)
            if decoded.problem:
                raise status.internal(decoded.problem)
            return decoded.obj

        with _warning(asked):
            left = await self._mutate(asked, obj, old, revise)
            assert left is not None
            # What replaces something is shown as what then is.
            await self._validate(asked, left if old is None else old | {"spec": left["spec"]}, old)
        kept = {key: value for key, value in left["metadata"].items() if key != "managedFields"}
        return left | {"metadata": kept}, asked.warnings

    async def _mutate_draft(self, asked: Asked, draft: Draft) -> None:
        """Lets the mutating webhooks have their way with a draft. Raises StatusError."""
        if not self._registered.mutating:
            return
        if not draft.errors:
            self._writes.track(draft)

        def revise(obj: JsonObject) -> JsonObject:
            self._writes.revise(draft, obj)
            return _shown(draft, asked)

        def readmit() -> JsonObject:
            if draft.old is None:
                self._writes.readmit(draft)
            return _shown(draft, asked)

        await self._mutate(asked, _shown(draft, asked), draft.old, revise, readmit)

    async def _mutate(
        self, asked: Asked, obj: JsonObject | None, old: JsonObject | None, revise: Revise,
        readmit: Callable[[], JsonObject] | None = None,
    ) -> JsonObject | None:  # fmt: skip
        """What the mutating webhooks make of an object.

        When one has changed it, the cluster's own admission is asked again, and so are the webhooks that came before
        a change and want to be. Raises StatusError.
        """
        called: set[str] = set()  # those to be asked again when something changes
        again: set[str] = set()
        changed = False
        for is_second in (False, True):
            for webhook in self._registered.mutating:
                if not self._wanted(webhook, asked, obj, old) or (is_second and webhook.key not in again):
                    continue
                before = obj
                obj = await self._mutated(webhook, asked, obj, old, revise)
                if obj != before:
                    changed, again, called = True, again | called, set()
                if webhook.reinvoked:
                    called.add(webhook.key)
            if is_second or not changed:
                break
            if readmit is not None:
                before, obj = copy(obj), readmit()
                again |= called if obj != before else set()
        return obj

    async def _mutated(
        self, webhook: Webhook, asked: Asked, obj: JsonObject | None, old: JsonObject | None, revise: Revise
    ) -> JsonObject | None:
        """The object after one webhook. Raises StatusError."""
        try:
            verdict = await self._verdict(webhook, asked, obj, old, mutating=True)
            operations = _operations(verdict)
        except CallFailed as error:
            _fail(webhook, error)
            return obj
        if not verdict.allowed:
            raise denial(webhook.name, verdict.reasons)
        if not operations:
            return obj
        if obj is None:
            why = "attempted to modify the object, which is not supported for this operation"
            raise status.internal(f'admission webhook "{webhook.name}" {why}')
        typed = {"kind": asked.kind.kind, "apiVersion": asked.kind.api_version} | obj
        try:
            return revise(patching.apply_operations(typed, operations))
        except patching.PatchFailed as error:
            raise status.internal(str(error)) from error

    async def _validate(self, asked: Asked, obj: JsonObject | None, old: JsonObject | None) -> None:
        """Asks the validating webhooks, all at once. Raises StatusError where one does not allow the request."""
        wanted = [webhook for webhook in self._registered.validating if self._wanted(webhook, asked, obj, old)]
        if not wanted:
            return
        answers = (self._validated(webhook, asked, obj, old) for webhook in wanted)
        for error in await asyncio.gather(*answers, return_exceptions=True):
            if error is not None:
                raise error

    async def _validated(self, webhook: Webhook, asked: Asked, obj: JsonObject | None, old: JsonObject | None) -> None:
        try:
            verdict = await self._verdict(webhook, asked, obj, old, mutating=False)
        except CallFailed as error:
            _fail(webhook, error)
            return
        if not verdict.allowed:
            raise denial(webhook.name, verdict.reasons)

    def _wanted(self, webhook: Webhook, asked: Asked, obj: JsonObject | None, old: JsonObject | None) -> bool:
        """Raises StatusError (404) where the labels of a namespace count that is not there."""
        return webhook.wants(asked, obj, old, lambda: self._labels(asked, obj))

    def _labels(self, asked: Asked, obj: JsonObject | None) -> Mapping[str, str]:
        """The labels of the namespace that a request is on or in."""
        if asked.on_namespace and not asked.subresource and obj is not None:
            return dig(obj, "metadata", "labels") or {}
        record = self._store.latest("/namespaces", asked.namespace) if asked.namespace else None
        if asked.namespace and record is None:
            raise status.not_found("", "namespaces", asked.namespace)
        return record.labels if record is not None else {}

    async def _verdict(
        self, webhook: Webhook, asked: Asked, obj: JsonObject | None, old: JsonObject | None, *, mutating: bool
    ) -> Verdict:
        """Raises CallFailed."""
        version = next(version for version in webhook.versions if version in ("v1", "v1beta1"))
        about = question(asked, version, obj, old)
        try:
            answer = await self._callouts.post(webhook.client, about.body, webhook.timeout_seconds)
        except NoClient as error:
            raise CallFailed(f"could not get REST client: {error}") from error
        except CallFailed as error:
            raise CallFailed(f"failed to call webhook: {error}") from error
        try:
            verdict = admissionreview.verdict(about, answer, mutating=mutating)
        except InvalidAnswer as error:
            raise CallFailed(f"received invalid webhook response: {error}") from error
        except Unreadable as error:
            raise CallFailed(f"failed to call webhook: {error}") from error
        asked.warnings.extend(verdict.warnings)
        return verdict


@contextmanager
def _warning(asked: Asked) -> Iterator[None]:
    """Tells whoever is refused what webhooks warn of."""
    try:
        yield
    except status.StatusError as error:
        error.warnings = [*dict.fromkeys(asked.warnings)]
        raise


def _with_warnings(outcome: Outcome, asked: Asked) -> Outcome:
    if not asked.warnings:
        return outcome
    return replace(outcome, warnings=[*dict.fromkeys((*asked.warnings, *outcome.warnings))])


def _fail(webhook: Webhook, error: CallFailed) -> None:
    """Raises StatusError (500) unless the webhook is one that need not answer."""
    why = f'failed calling webhook "{webhook.name}": {error}'
    if not webhook.ignores_failure:
        raise status.internal(why) from error
    logger.warning("%s; the request goes on without it", why)


def _operations(verdict: Verdict) -> Sequence[JsonObject]:
    """The JSON patch of an answer. Raises CallFailed."""
    if not verdict.allowed or not verdict.patch:
        return ()
    try:
        operations = decode(verdict.patch)
    except msgspec.DecodeError as error:
        why = bodies.syntax_error(error, "json-patch+json", verdict.patch)
        raise CallFailed(f"received undecodable patch in webhook response: {why}") from error
    if not isinstance(operations, list):
        why = bodies.not_into(operations, "jsonpatch.Patch")
        raise CallFailed(f"received undecodable patch in webhook response: {why}")
    if verdict.patch_type != "JSONPatch":
        raise CallFailed(f'unsupported patch type "{verdict.patch_type}"')
    return operations


def _unchangeable(obj: JsonObject) -> JsonObject:
    return obj


def _shown(draft: Draft, asked: Asked) -> JsonObject:
    """A draft's object as mutating webhooks see it: a new one has no identity yet, nor a status."""
    if draft.old is not None:
        return draft.obj
    hidden = ["uid", "creationTimestamp"]
    hidden += ["generation"] * draft.kind.generation + ["name"] * (not asked.name)
    meta = {key: value for key, value in draft.obj["metadata"].items() if key not in hidden}
    shown = draft.obj | {"metadata": meta}
    if draft.kind.status and draft.kind.kind != "Node":
        shown.pop("status", None)
        shown |= {"status": blank(draft.kind)["status"]} if "status" in blank(draft.kind) else {}
    return shown


def _asked(request: Request, operation: str, kind: Kind, resource: Kind, how: How, namespace: str, name: str) -> Asked:
    on_namespace = resource.resource == "/namespaces"
    return Asked(
        operation=operation, kind=kind, resource=resource, subresource=how.subresource,
        namespace=name if on_namespace else namespace, name=name, dry_run=how.dry_run,
        options=_options(request, operation, how), user=USER,
    )  # fmt: skip


def _options(request: Request, operation: str, how: How) -> JsonObject:
    """The options of a request, as its operation has them."""
    options: JsonObject = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if operation == "DELETE":
        return options | bodies.deletion_options(request)
    if how.dry_run:
        options["dryRun"] = ["All"]
    return options | {key: request.query[key] for key in ("fieldManager", "fieldValidation") if request.query.get(key)}
