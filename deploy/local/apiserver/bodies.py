"""Request bodies: JSON or YAML objects, patches and options, checked against what the path says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import yaml

from deploy.local.apiserver import nesting, protobuf, status, structs
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.kinds import Kind, mismatch
from deploy.local.apiserver.nesting import TooNested
from deploy.local.apiserver.objects import Json, JsonObject, decode, dig, encode
from deploy.local.apiserver.requests import Request

_YAML = ("application/yaml", "application/apply-patch+yaml")
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_OBJECTS = ("application/json", "application/yaml", _PROTOBUF)
_NO_MAP = "error decoding YAML: error unmarshaling JSON: while decoding JSON:"
_NO_TYPE = "couldn't get version/kind; json parse error:"
_TYPE_META = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
_QUOTED_LETTERS = 30
_MALFORMED_JSON = (msgspec.DecodeError, UnicodeError, RecursionError, TooNested)
_MALFORMED_YAML = (yaml.YAMLError, UnicodeError, RecursionError, TooNested)
_BOTH_SET = "orphanDependents and deletionPropagation cannot be both set"
_ACCEPTED = (
    "this server takes JSON and YAML: use `kubectl apply -f` or `kubectl create -f` with a manifest "
    "(`kubectl create ... --dry-run=client -o yaml | kubectl apply -f -`)"
)


def parse(request: Request) -> Json:
    """The body as JSON. Raises StatusError (400, 415)."""
    media_type = request.content_type
    try:
        if media_type == _PROTOBUF:
            return protobuf.read(request.body)
        if "cbor" in media_type:
            raise status.unsupported_media_type(_ACCEPTED)
        if media_type in _YAML and not _is_json(request.body):
            # Timestamps stay text: JSON has none.
            return _load_yaml(request.body)[0]
        return _load_json(request.body)
    except protobuf.Unreadable as error:
        raise status.unsupported_media_type(f"this protobuf body cannot be read: {error}; {_ACCEPTED}") from None
    except (*_MALFORMED_JSON, *_MALFORMED_YAML) as error:
        raise Unreadable(syntax_error(error, media_type, request.body), request.body) from None


def _load_json(body: bytes) -> Json:
    """Raises one of _MALFORMED_JSON."""
    found = decode(body)
    nesting.check_json(body, found)
    if b"\\ud" in body.lower():
        encode(found)  # half of a surrogate pair is no text
    return found


def _is_json(body: bytes) -> bool:
    """Whether a body that may be YAML is JSON, which is read much faster."""
    if not body.lstrip().startswith(b"{"):
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class Unreadable(status.StatusError):
    """A body that is neither JSON nor YAML; `why` in the words of the API's decoder."""

    def __init__(self, why: str, body: bytes) -> None:
        super().__init__(400, "BadRequest", f"the body of the request could not be read: {why}")
        self.why = why
        self.body = body

    def of_type(self, name: str) -> status.StatusError:
        """The answer where an object of a type belongs."""
        return _unrecognized(name, self.why, self.body)


def _unrecognized(name: str, why: str, body: bytes) -> status.StatusError:
    quoted = "<empty>"
    if body:
        whole = body.decode(errors="replace") if body[:1] == b"{" else body.hex()
        quoted = whole if len(whole) <= _QUOTED_LETTERS else f"{whole[:_QUOTED_LETTERS]} ..."
    return status.bad_request(f"the object provided is unrecognized (must be of type {name}): {why} ({quoted})")


def syntax_error(error: Exception, media_type: str, body: bytes) -> str:
    """Why a body is not what its media type says, in the words of the API's decoder."""
    if isinstance(error, RecursionError | TooNested):
        return str(error) if isinstance(error, TooNested) else nesting.TOO_DEEP
    if isinstance(error, yaml.YAMLError):
        return f"yaml: {' '.join(str(error).split())}"
    if "truncated" in str(error):
        problem = "unexpected end of JSON input"
    else:
        at = re.search(r"\(byte (\d+)\)", str(error))
        letter = body[int(at[1]) : int(at[1]) + 1].decode(errors="replace") if at else ""
        problem = f"invalid character '{letter}' looking for beginning of value" if letter else str(error)
    return problem if media_type.endswith("patch+json") else f"{_NO_TYPE} {problem}"


class _JsonLoader(yaml.SafeLoader):
    """YAML restricted to what JSON can say, with the keys that come twice."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def fetch_flow_collection_start(self, token_class: type[yaml.Token]) -> None:
        """What it does for one bracket takes longer the deeper it is."""
        if self.flow_level > nesting.MAX_LEVELS:
            raise TooNested(nesting.TOO_DEEP)
        super().fetch_flow_collection_start(token_class)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(problem="invalid map key", problem_mark=key.start_mark)
            if key.value in seen:
                self.repeated.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        value = self.construct_yaml_float(node)
        if not math.isfinite(value):
            raise yaml.constructor.ConstructorError(problem=f"unsupported value: {value}", problem_mark=node.start_mark)
        return value


_JsonLoader.add_constructor("tag:yaml.org,2002:float", _JsonLoader.construct_finite)
_JsonLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _load_yaml(body: bytes) -> tuple[Json, Sequence[str]]:
    """A document, and the keys that come twice in it. Raises one of _MALFORMED_YAML."""
    loader = _JsonLoader(body)
    try:
        found = loader.get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError, TooNested):
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise yaml.YAMLError(f"a value is not of its tag: {error}") from error  # as PyYAML finds, and lets pass
    finally:
        loader.dispose()
    nesting.check(found, len(body))  # a value takes a byte at least
    try:
        return decode(encode(found)), loader.repeated
    except (TypeError, ValueError) as error:
        raise yaml.YAMLError(f"it holds what JSON cannot: {error}") from error


def unmarshalled(body: bytes) -> JsonObject:
    """An object in JSON, or else in YAML, where nobody says which it is. Raises Unreadable."""
    try:
        found = _load_json(body)
    except _MALFORMED_JSON:
        try:
            found = _load_yaml(body)[0]
        except _MALFORMED_YAML as error:
            raise Unreadable(syntax_error(error, "", body), body) from None
    if isinstance(found, dict):
        return found
    raise Unreadable(f"{_NO_TYPE} {not_into(found, _TYPE_META)}", body)


def repeated_fields(request: Request, parsed: Json) -> Sequence[str]:
    """What strict decoding says of the fields that come twice in a body that was parsed."""
    if request.content_type == _PROTOBUF or request.field_validation == "Ignore":
        return ()
    if request.body.lstrip()[:1] in (b"{", b"["):
        # Nothing was dropped where what was parsed is the body, as it is for our own clients. Elsewhere a field has
        # one colon, in the body as in what it was parsed to, but for the fields that were dropped.
        said = encode(parsed)
        if said == request.body or said.count(b":") == request.body.count(b":"):
            return ()
    if request.content_type in _YAML:
        return _load_yaml(request.body)[1]
    found: list[str] = []
    _find_repeated(json.loads(request.body, object_pairs_hook=list), "", found)
    return [f'duplicate field "{path}"' for path in found]


def _find_repeated(value: Json, path: str, found: list[str]) -> None:
    """Walks JSON whose objects are lists of pairs."""
    seen = set()
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, tuple):
            where = f"{path}.{item[0]}" if path else item[0]
            if item[0] in seen:
                found.append(where)
            seen.add(item[0])
            _find_repeated(item[1], where, found)
        else:
            _find_repeated(item, f"{path}[{index}]", found)


def parse_written(request: Request) -> Json:
    """The body of a request that is no patch. Raises StatusError (400, 415)."""
    if request.content_type not in ("", "application/cbor", *_OBJECTS):
        raise status.unsupported_media_type(status.unknown_format(_OBJECTS))
    return parse(request)


def parse_object(request: Request, kind: Kind, namespace: str) -> tuple[JsonObject, Sequence[str]]:
    """The object of a create or update, of the path's kind and namespace, and its repeated fields.

    Raises StatusError.
    """
    try:
        parsed = parse_written(request)
    except Unreadable as error:
        raise error.of_type(kind.kind) from None
    if not isinstance(parsed, dict):
        raise _unrecognized(kind.kind, f"{_NO_TYPE} {not_into(parsed, _TYPE_META)}", request.body)
    if kind.custom and not parsed.get("kind"):
        why = f"Object 'Kind' is missing in '{request.body.decode(errors='replace')}'"
        raise _unrecognized(kind.kind, why, request.body)
    return check_object(parsed, kind, namespace), repeated_fields(request, parsed)


def not_into(value: Json, wanted: str) -> str:
    """Why JSON of another kind does not become a Go type."""
    name = {list: "array", str: "string", bool: "bool", dict: "object"}.get(type(value), "number")
    return f"json: cannot unmarshal {name} into Go value of type {wanted}"


def parse_applied(request: Request, kind: Kind, namespace: str) -> tuple[JsonObject, Sequence[str]]:
    """The configuration of an apply, of the path's kind and namespace, and its repeated fields. Raises StatusError."""
    try:
        parsed = parse(request)
    except Unreadable as error:
        raise status.bad_request(f"error decoding YAML: error converting YAML to JSON: {error.why}") from None
    if not isinstance(parsed, dict | None):
        raise status.bad_request(f"{_NO_MAP} {not_into(parsed, 'map[string]interface {}')}")
    api_version, kind_name = ((parsed or {}).get(key) or "" for key in ("apiVersion", "kind"))
    if (api_version, kind_name) != (kind.api_version, kind.kind):
        group_version = api_version if "/" in str(api_version) else f"/{api_version}"
        raise status.bad_request(f"invalid object type: {group_version if api_version else '/'}, Kind={kind_name}")
    return check_object(parsed, kind, namespace), repeated_fields(request, parsed)


def check_object(obj: Json, kind: Kind, namespace: str) -> JsonObject:
    if not isinstance(obj, dict):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            "couldn't get version/kind; json parse error: the body is no JSON object"
        )
    api_version, kind_name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if kind_name != kind.kind:
        if kind.custom:
            error = status.invalid_value("kind", kind_name, f"must be {kind.kind}")
            raise status.invalid(kind.group, kind_name, str(dig(obj, "metadata", "name") or ""), [error])
        version = str(api_version).rpartition("/")[2]
        why = mismatch(kind, str(api_version), kind_name)
        raise status.bad_request(f'{kind_name} in version "{version}" cannot be handled as a {kind.kind}: {why}')
    if api_version != kind.api_version and not kind.custom:
        version = str(api_version).rpartition("/")[2]
        why = mismatch(kind, str(api_version), kind_name)
        raise status.bad_request(f'{kind_name} in version "{version}" cannot be handled as a {kind.kind}: {why}')
    if api_version != kind.api_version:
        raise status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
    meta = obj.get("metadata") or {}
    if not isinstance(meta, dict):
        raise status.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            + structs.decode_metadata(kind.kind, {"metadata": meta}).problem
        )
    if kind.namespaced and meta.get("namespace") not in (None, "", namespace):
        raise status.foreign_namespace()
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": dict(meta)} | {
        key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")
    }


def parse_deletion(request: Request) -> Deletion:
    """DeleteOptions from the body, or else from the query. Raises StatusError (400, 422)."""
    options = parse_written(request) if request.body.strip() else {}
    if not isinstance(options, dict):
        raise status.bad_request(f"{_NO_TYPE} {not_into(options, _TYPE_META)}")
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in request.query:
        grace = request.number("gracePeriodSeconds")
    if grace is not None and not isinstance(grace, int):
        found = {str: "string", bool: "bool", list: "array", dict: "object"}.get(type(grace), "number")
        what = "Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        raise status.bad_request(f"json: cannot unmarshal {found} into {what}")
    propagation = options.get("propagationPolicy") or request.query.get("propagationPolicy") or ""
    if options.get("orphanDependents") is not None and propagation:
        error = status.invalid_value("propagationPolicy", propagation, _BOTH_SET)
        raise status.invalid_options("DeleteOptions", error)
    if options.get("orphanDependents"):
        propagation = "Orphan"
    allowed = ("Foreground", "Background", "Orphan")
    if propagation and propagation not in allowed:
        error = status.unsupported("propagationPolicy", propagation, (*allowed, "nil"))
        raise status.invalid_options("DeleteOptions", error)
    return Deletion(
        grace_period_seconds=grace,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        propagation=propagation or "Background",
    )


def deletion_options(request: Request) -> JsonObject:
    """DeleteOptions as they were sent, in the body or else in the query. Raises StatusError (400, 415)."""
    options = parse_written(request) if request.body.strip() else {}
    if isinstance(options, dict) and options:
        return {key: value for key, value in options.items() if key not in ("kind", "apiVersion")}
    seconds = request.query.get("gracePeriodSeconds")
    return (
        ({"gracePeriodSeconds": int(seconds)} if seconds else {})
        | {key: request.query[key] for key in ("propagationPolicy",) if request.query.get(key)}
        | ({"dryRun": ["All"]} if request.dry_run else {})
    )


def dry_run_of_deletion(request: Request) -> bool:
    """Dry run may be asked for in the DeleteOptions of the body as well."""
    body = parse(request) if request.body.strip() else {}
    asked = body.get("dryRun") if isinstance(body, dict) else None
    if asked not in (None, [], ["All"]):
        raise status.invalid_options("DeleteOptions", status.unsupported("dryRun", asked, ("All",)))
    return request.dry_run or bool(asked)
