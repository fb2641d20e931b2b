"""Answers to requests, and the form the client asked for: JSON, a Table or bare metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import yaml

from deploy.local.apiserver import status, tables
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject, decode, encode
from deploy.local.apiserver.requests import Request
from deploy.local.apiserver.status import StatusError
from deploy.local.apiserver.store import Record

Headers = tuple[tuple[bytes, bytes], ...]


_JSON, _YAML, _PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer."""

    body: bytes
    code: int = 200
    content_type: bytes = b"application/json"
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on: chunks to `take` until there is None, and what to do when nobody takes more."""

    take: Callable[[], Awaitable[bytes | None]]
    close: Callable[[], None]
    content_type: bytes = b"application/json"


def json_response(obj: object, code: int = 200) -> Response:
    return Response(encode(obj), code)


def text_response(text: str, code: int = 200) -> Response:
    return Response(text.encode(), code, b"text/plain; charset=utf-8")


def failure(error: StatusError) -> Response:
    headers = warning_headers(error.warnings)
    if error.retry_after_seconds:
        headers = (*headers, (b"retry-after", str(error.retry_after_seconds).encode()))
    return Response(encode(error.to_object()), error.code, headers=headers)


def warning_headers(warnings: Sequence[str]) -> Headers:
    return tuple((b"warning", b'299 - "%s"' % text.replace('"', '\\"').encode()) for text in warnings)


@dataclass(frozen=True, slots=True)
class Form:
    """How objects are shown: "" (as they are), "Table" or "Partial"."""

    kind: Kind
    shown_as: str = ""
    include_object: str = "Metadata"
    media_type: str = _JSON
    version: str = "v1"

    def one(self, obj: JsonObject) -> JsonObject:
        if self.shown_as == "Table":
            version = obj["metadata"].get("resourceVersion", "")
            return self._versioned(tables.table(self.kind, [obj], {"resourceVersion": version}, self.include_object))
        return self._versioned(tables.partial(obj))

    def value(self, value: bytes, code: int = 200, headers: Headers = ()) -> Response:
        if not self.shown_as:
            return self._written(Response(value, code, headers=headers))
        return self._written(Response(encode(self.one(decode(value))), code, headers=headers))

    def many(self, records: Sequence[Record], list_meta: JsonObject) -> Response:
        if not self.shown_as:
            list_meta = {"continue": "", **list_meta} if self.kind.custom else list_meta
            return self._written(Response(_spliced(self.kind, records, list_meta)))
        objects = [record.load() for record in records]
        if self.shown_as == "Table":
            table = tables.table(self.kind, objects, list_meta, self.include_object)
            return self._written(json_response(self._versioned(table)))
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta}
        items = {"items": [tables.partial(obj) for obj in objects]}
        return self._written(json_response(self._versioned(head | items)))

    def _versioned(self, obj: JsonObject) -> JsonObject:
        return obj | {"apiVersion": f"meta.k8s.io/{self.version}"}

    def _written(self, response: Response) -> Response:
        if self.media_type == _JSON:
            return response
        text = yaml.safe_dump(decode(response.body), allow_unicode=True)
        return replace(response, body=text.encode(), content_type=_YAML.encode())


def form_of(request: Request, kind: Kind) -> Form:
    """The first of the Accept header's forms that is served; JSON for protobuf. Raises StatusError (406)."""
    accept = request.header(b"accept")
    if accept in ("", "*/*", _JSON):
        return Form(kind)
    for media_range in accept.split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        media_type = _JSON if media_type in ("*/*", "application/*", _PROTOBUF) else media_type
        if media_type not in (_JSON, _YAML):
            continue
        form = Form(kind, media_type=media_type)
        if "as" not in options:
            return form
        if options.get("g") != "meta.k8s.io" or options.get("v") not in ("v1", "v1beta1"):
            continue
        form = replace(form, version=options["v"])
        match options["as"]:
            case "Table":
                return replace(form, shown_as="Table", include_object=request.query.get("includeObject") or "Metadata")
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return replace(form, shown_as="Partial")
    raise status.not_acceptable((_JSON, _YAML))


def _spliced(kind: Kind, records: Sequence[Record], list_meta: JsonObject) -> bytes:
    """A list put together from the stored bytes, nothing decoded. Items of built-in kinds do not repeat the kind."""
    head = encode({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": list_meta})
    repeated = b"" if kind.custom else kind_prefix(kind)
    pieces: list[bytes | memoryview] = [head[:-1], b',"items":[']
    for record in records:
        if repeated and record.value.startswith(repeated):
            pieces += (b"{", memoryview(record.value)[len(repeated) :], b",")
        else:
            pieces += (record.value, b",")
    if records:
        pieces.pop()
    return b"".join((*pieces, b"]}"))


def kind_prefix(kind: Kind) -> bytes:
    """How the JSON of every stored object of a kind begins."""
    return encode({"apiVersion": kind.api_version, "kind": kind.kind})[:-1] + b","
