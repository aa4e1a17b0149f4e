"""The media type of an answer: JSON, YAML on request, or an error where none can be given."""

from __future__ import annotations

import functools
from typing import Final, Literal

import attrs
import msgspec
import yaml

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer
from gpusched.devcluster.apiserver.writing import bodies

Media = Literal["json", "yaml"]
_KINDS: Final = frozenset(
    {"", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"}
)
_ANY: Final = frozenset({"*/*", "application/*"})


@functools.lru_cache(maxsize=64)
def negotiate_media_type(accept: str, *, custom: bool) -> Media:
    """Return the form of the first media type of an Accept header that can be given.

    What would be protobuf on a real server is JSON: clients read the type of the answer.

    Args:
        accept: the header; an empty one takes anything.
        custom: whether the answer is of a custom kind, which has no protobuf.

    Raises:
        StatusError: 406, there is none.
    """
    for clause in accept.split(",") if accept.strip() else ():
        name, _, rest = clause.partition(";")
        media = name.strip().lower()
        wanted = dict(p.strip().partition("=")[::2] for p in rest.split(";"))
        if wanted.get("as", "") not in _KINDS:
            continue
        if media == bodies.YAML:
            return "yaml"
        if media == bodies.JSON or media in _ANY or (media == bodies.PROTOBUF and not custom):
            return "json"
        if media == "text/plain":  # logs, which are no objects
            return "json"
    if not accept.strip():
        return "json"
    known = [bodies.JSON, bodies.YAML] if custom else [bodies.JSON, bodies.YAML, bodies.PROTOBUF]
    why = f"only the following media types are accepted: {', '.join(known)}"
    raise status.failure(406, "NotAcceptable", why)


def encode_as(answer: ApiAnswer, media: Media) -> ApiAnswer:
    """Turn a whole answer into YAML where that was asked; streams and logs stay as they are."""
    if media == "json" or answer.stream is not None or answer.content_type != bodies.JSON:
        return answer
    body = yaml.dump(msgspec.json.decode(answer.body), Dumper=yaml.CSafeDumper, allow_unicode=True)
    return attrs.evolve(answer, body=body.encode(), content_type=bodies.YAML)
