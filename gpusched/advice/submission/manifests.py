"""Files of manifests: what kubectl would send of them, each document with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import JSON_DEPTH_MAX
from gpusched.config.yaml_parser import file_too_large_message, parse_manifests
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value, quoted

Obj: TypeAlias = dict[str, Any]
MANIFEST_BYTES_MAX: Final = 4 * 2**20
"""Bytes of one file: the API server takes no larger request than 3 MiB."""
DOCUMENTS_MAX: Final = 1_000
_VALUES_MAX: Final = 500_000
"""Values of one file, each alias counted as what it stands for."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_MERGE: Final = "<<"


@frozen
class SubmittedObject:
    """One document.

    Attributes:
        obj: the manifest, with apiVersion, kind and a name.
        place: file and line, for sentences.
    """

    obj: Obj
    place: str

    @property
    def title(self) -> str:
        """Kind and name."""
        return f"{self.obj['kind']} {self.obj['metadata']['name']}"


def read_manifests(raw: bytes, source: str) -> tuple[SubmittedObject, ...]:
    """The documents of a file, items of lists one by one.

    Args:
        raw: YAML or JSON.
        source: its name, for sentences.

    Raises:
        ConfigError: with file and line: it holds no manifests, or what stands there is none.
    """
    if len(raw) > MANIFEST_BYTES_MAX:
        raise file_too_large_message(source, most=MANIFEST_BYTES_MAX)
    problems = ConfigProblems(source)
    documents = parse_manifests(raw, problems, depth=JSON_DEPTH_MAX)
    found: list[SubmittedObject] = []
    if documents is not None and not problems:
        budget = _ValueBudget(_VALUES_MAX)
        try:
            for node in documents:
                found += _document_objects(node, budget.value(node), source, problems)
        except _TooManyValuesError:
            problems.add(1, f"its aliases stand for more than {_VALUES_MAX:,} values")
    if problems:
        raise problems.error()
    if not found:
        raise ConfigError(f"{source}: holds no manifest")
    if len(found) > DOCUMENTS_MAX:
        raise ConfigError(f"{source}: holds {len(found):,} manifests, more than {DOCUMENTS_MAX:,}")
    return tuple(found)


def take_manifests(values: Sequence[Mapping[str, Any]], source: str) -> tuple[SubmittedObject, ...]:
    """The same of values that are parsed already, such as those of a request.

    Raises:
        ConfigError: there is none, or one is no manifest.
    """
    problems = ConfigProblems(source)
    found: list[SubmittedObject] = []
    for number, value in enumerate(values, 1):
        found += _checked_objects(dict(value), f"{source}:{number}", number, problems)
    if problems:
        raise problems.error()
    if not found:
        raise ConfigError(f"{source}: holds no manifest")
    return tuple(found)


class _TooManyValuesError(Exception):
    """A small file stands for more than anybody means."""


class _ValueBudget:
    """Turns nodes into values as JSON has them, up to a number of them."""

    def __init__(self, left: int) -> None:
        self._left = left

    def value(self, node: YamlNode) -> Any:
        """What a node holds."""
        self._left -= 1
        if self._left < 0:
            raise _TooManyValuesError
        if isinstance(node.value, dict):
            made: dict[str, Any] = {}
            for key, entry in node.value.items():
                value = self.value(entry.node)
                if key == _MERGE:
                    for each in value if isinstance(value, list) else [value]:
                        made = {**each, **made} if isinstance(each, dict) else made
                else:
                    made[key] = value
            return made
        if isinstance(node.value, tuple):
            return [self.value(item) for item in node.value]
        return node.value


def _document_objects(
    node: YamlNode, value: Any, source: str, problems: ConfigProblems
) -> Iterator[SubmittedObject]:
    if not isinstance(node.value, dict):
        problems.add(
            node.line, f"a manifest must be a mapping with apiVersion and kind, not {describe_value(node)}"
        )  # fmt: skip
        return
    yield from _checked_objects(value, f"{source}:{node.line}", node.line, problems)


def _checked_objects(
    value: Obj, place: str, line: int, problems: ConfigProblems
) -> Iterator[SubmittedObject]:
    kind, version = value.get("kind"), value.get("apiVersion")
    for name, given in (("apiVersion", version), ("kind", kind)):
        if not isinstance(given, str) or not given:
            problems.add(line, f"a manifest needs {name}, which says what it is")
            return
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
        for number, item in enumerate(value["items"]):
            if not isinstance(item, dict):
                problems.add(
                    line, f"items[{number}] of {kind} is {describe_value(item)}, no manifest"
                )
                continue
            yield from _checked_objects(item, place, line, problems)
        return
    why = _metadata_fault(value)
    if why:
        problems.add(line, f"{kind} {why}")
        return
    yield SubmittedObject(_with_name(value), place)


def _metadata_fault(value: Obj) -> str:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return "has no metadata.name"
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str) or not name:
        return "has no metadata.name"
    if not _NAME.fullmatch(name.rstrip("-") if not metadata.get("name") else name):
        return (
            f"has metadata.name {quoted(name)}: a name is lower case letters, digits, '-' and '.', "
            "and begins and ends with a letter or digit"
        )
    namespace = metadata.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and _NAME.fullmatch(namespace)):
        return f"{name} has metadata.namespace {describe_value(namespace)}, which is no namespace"
    for field in ("labels", "annotations"):
        texts = metadata.get(field)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            return (
                f"{name} has metadata.{field} {describe_value(texts)}: a mapping of texts is needed"
            )
        wrong = next((key for key in texts if not isinstance(texts[key], str)), None)
        if wrong is not None:
            return (
                f"{name} has metadata.{field}[{wrong}] {describe_value(texts[wrong])}: "
                "a text is needed, quote it"
            )
    spec = value.get("spec")
    if spec is not None and not isinstance(spec, dict):
        return f"{name} has spec {describe_value(spec)}: a mapping is needed"
    return ""


def _with_name(value: Obj) -> Obj:
    """A manifest with a name where it has the beginning of one, as the API server gives it."""
    metadata = value["metadata"]
    if metadata.get("name"):
        return value
    return {**value, "metadata": {**metadata, "name": f"{metadata['generateName']}00001"}}
