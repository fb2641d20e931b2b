"""Responses, and the requested format: JSON, a Table or bare metadata."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from starlette.responses import Response, StreamingResponse

from deploy.local.apiserver import tables
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject, decode, encode
from deploy.local.apiserver.requests import Request
from deploy.local.apiserver.status import StatusError
from deploy.local.apiserver.store import StoredObject

Headers = tuple[tuple[bytes, bytes], ...]

_JSON = "application/json"
_SERVED = (_JSON, "*/*", "application/*", "application/vnd.kubernetes.protobuf")


def response(value: bytes, code: int = 200, headers: Headers = ()) -> Response:
    """A JSON response."""
    found = Response(value, code, media_type=_JSON)
    found.raw_headers.extend(headers)
    return found


def json_response(obj: object, code: int = 200) -> Response:
    return response(encode(obj), code)


def done(code: int = 200, **fields: object) -> Response:
    """The Status of a call that has no object to answer with; `fields` are more of it."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
    return json_response(status | fields, code)


def failure(error: StatusError) -> Response:
    seconds = (error.details or {}).get("retryAfterSeconds")
    headers: Headers = ((b"retry-after", str(seconds).encode()),) if seconds else ()
    return response(encode(error.to_object()), error.code, headers)


def stream(chunks: AsyncIterator[bytes], media_type: str = _JSON) -> Response:
    """A response without end; its head is sent at once, since the first chunk can take a long time."""

    async def begun() -> AsyncIterator[bytes]:
        yield b""
        async for chunk in chunks:
            yield chunk

    return StreamingResponse(begun(), media_type=media_type)


def warning_headers(warnings: Sequence[str]) -> Headers:
    return tuple((b"warning", b'299 - "%s"' % text.replace('"', '\\"').encode()) for text in warnings)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of objects in the answer: unchanged, or as the rows of a Table."""

    kind: ApiKind
    as_table: bool = False
    include_object: str = "Metadata"

    def one(self, obj: JsonObject) -> JsonObject:
        """The Table of one object."""
        version = obj["metadata"].get("resourceVersion", "")
        return tables.table(self.kind, [obj], {"resourceVersion": version}, self.include_object)

    def value(self, value: bytes, code: int = 200, headers: Headers = ()) -> Response:
        return response(encode(self.one(decode(value))) if self.as_table else value, code, headers)

    def many(self, records: Sequence[StoredObject], list_meta: JsonObject) -> Response:
        if not self.as_table:
            head = encode({"kind": f"{self.kind.kind}List", "apiVersion": self.kind.api_version, "metadata": list_meta})
            # Joined from the stored bytes without decoding.
            return response(b'%s,"items":[%s]}' % (head[:-1], b",".join(record.value for record in records)))
        objects = [record.load() for record in records]
        return json_response(tables.table(self.kind, objects, list_meta, self.include_object))


def form_of(request: Request, kind: ApiKind) -> Form:
    """The first served format in the Accept header; JSON for protobuf. Raises StatusError (406)."""
    accept = request.header(b"accept")
    for media_range in (accept or _JSON).split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media_type not in _SERVED:
            continue
        if "as" not in options:
            return Form(kind)
        if (options["as"], options.get("g"), options.get("v")) == ("Table", "meta.k8s.io", "v1"):
            return Form(kind, as_table=True, include_object=request.query.get("includeObject") or "Metadata")
    raise StatusError(406, "NotAcceptable", f"only {_JSON} is served")
