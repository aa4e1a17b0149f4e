"""YAML as Kubernetes reads it, from untrusted clients: bounded before it is built, only JSON values."""

from __future__ import annotations

import base64
import math
import pickle
from functools import lru_cache
from typing import Any, Final

import yaml

from gpusched.devcluster.apimachinery.limits import YAML_DEPTH_MAX, YAML_NODES_MAX

_TEXTS_KEPT: Final = 128
"""Texts whose documents are remembered: manifests, Stages and policies of a cluster are some 30."""
_OPENERS: Final = (b"[", b"{", b"- ", b"? ", b"-\t", b"?\t", b"- \t")
_INDENTED: Final = b" " * YAML_DEPTH_MAX


class _Loader(yaml.CSafeLoader):
    """A YAML loader in which timestamps stay texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def load_document(text: str | bytes) -> Any:
    """Parse one document to JSON values; raises yaml.YAMLError, also for what is too deep."""
    raw = text.encode() if isinstance(text, str) else text
    # The parser recurses on the C stack, so depth is checked first; most texts are plainly flat.
    if sum(map(raw.count, _OPENERS)) > YAML_DEPTH_MAX or b"*" in raw or _INDENTED in raw:
        _check(raw)
    try:
        return _plain(yaml.load(raw, _Loader))  # noqa: S506  # a subclass of the safe loader
    except (ValueError, TypeError, OverflowError, AttributeError) as e:
        if isinstance(e, yaml.YAMLError):
            raise
        raise yaml.YAMLError(str(e)) from None


def yaml_error_message(fault: yaml.YAMLError) -> str:
    """What is wrong with a text, as the server's parser words it."""
    if not isinstance(fault, yaml.MarkedYAMLError) or fault.problem_mark is None:
        return str(fault)
    line = fault.problem_mark.line + isinstance(fault, yaml.scanner.ScannerError)
    return f"yaml: line {line}: {fault.problem}" if line else f"yaml: {fault.problem}"


def load_all_documents(text: str) -> list[Any]:
    """Parse every document of a trusted text, empty ones left out."""
    found: list[Any] = pickle.loads(_parsed(text))  # noqa: S301  # bytes of our own, to have a copy
    return found


@lru_cache(maxsize=_TEXTS_KEPT)
def _parsed(text: str) -> bytes:
    """The documents of a text; each new cluster of a process reads the same files."""
    return pickle.dumps([doc for doc in yaml.load_all(text, _Loader) if doc is not None])


def _check(raw: bytes) -> None:
    """Count depth and values, aliases followed, on the parser's events."""
    sizes = [0]
    anchors: list[str | None] = [None]
    known: dict[str, int] = {}
    for event in yaml.parse(raw, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            if len(sizes) > YAML_DEPTH_MAX:
                raise yaml.YAMLError("yaml: exceeded max depth of 10000")
            sizes.append(1)
            anchors.append(event.anchor)
            continue
        size = 1
        if isinstance(event, yaml.CollectionEndEvent):
            size, anchor = sizes.pop(), anchors.pop()
        elif isinstance(event, yaml.AliasEvent):
            size, anchor = known.get(event.anchor or "", 1), None
        else:
            anchor = getattr(event, "anchor", None)
        if anchor is not None:
            known[anchor] = size
        sizes[-1] += size
        if sizes[-1] > YAML_NODES_MAX:
            raise yaml.YAMLError("yaml: document contains excessive aliasing")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set):
        return {_key(key): None for key in sorted(value, key=str)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        raise yaml.YAMLError(f"json: unsupported value: {value}")
    return value


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise yaml.YAMLError(f"unsupported map key of type {type(key).__name__}")
