"""Lists and mappings in a scenario's files; see ``shapes``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched.config.tree import Entry, Node, Problems, listed, nearest, quoted, shown
from gpusched.config.values import BadValueError
from gpusched.limits import SCENARIO_COUNT_MAX
from gpusched.scenario.shapes import Schema, Shape

_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@attrs.frozen
class Listing:
    """A list; read as a tuple, without the items that are wrong (which are told)."""

    item: Shape
    least: int = 0
    most: int = SCENARIO_COUNT_MAX

    def read(self, node: Node, name: str, problems: Problems) -> tuple[Any, ...]:
        """See ``Shape.read``."""
        if not isinstance(node.value, tuple):
            raise BadValueError(node.line, f"{name} must be a list, not {shown(node)}")
        if not self.least <= len(node.value) <= self.most:
            some = f"{self.least} to {self.most}" if self.least != self.most else f"{self.most}"
            raise BadValueError(
                node.line, f"{name} must be a list of {some} items, not of {len(node.value)}"
            )
        found = []
        for each in node.value:
            try:
                found.append(self.item.read(each, f"an item of {name}", problems))
            except BadValueError as error:
                problems.add(error.line, error.what)
        return tuple(found)

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.least,
            "maxItems": self.most,
        }


@attrs.frozen
class MapOf:
    """A mapping of any keys to values of one shape, such as labels."""

    value: Shape
    keys: str = "keys of labels"
    pattern: str = _LABEL_KEY.pattern

    def read(self, node: Node, name: str, problems: Problems) -> dict[str, Any]:
        """See ``Shape.read``."""
        if not isinstance(node.value, dict):
            raise BadValueError(node.line, f"{name} must be a mapping, not {shown(node)}")
        found = {}
        for key, entry in node.value.items():
            if self.pattern and not re.fullmatch(self.pattern, key):
                problems.add(entry.line, f"{name} must have {self.keys}, not {quoted(key)}")
                continue
            try:
                found[key] = self.value.read(entry.node, f"{name}[{key}]", problems)
            except BadValueError as error:
                problems.add(error.line, error.what)
        return found

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        names = {"propertyNames": {"pattern": f"^({self.pattern})$"}} if self.pattern else {}
        return {"type": "object", "additionalProperties": self.value.schema(), **names}


@attrs.frozen
class Either:
    """Different shapes for different kinds of YAML values.

    Attributes:
        cases: first type of the node's value that fits, and its shape.
        what: said of anything else.
    """

    cases: tuple[tuple[tuple[type, ...], Shape], ...]
    what: str

    def read(self, node: Node, name: str, problems: Problems) -> Any:
        """See ``Shape.read``."""
        for types, shape in self.cases:
            # True is an int to Python, and to nobody else.
            if type(node.value) in types:
                return shape.read(node, name, problems)
        raise BadValueError(node.line, f"{name} must be {self.what}, not {shown(node)}")

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return {"anyOf": [shape.schema() for _, shape in self.cases]}


@attrs.frozen
class Made:
    """A shape whose value is made into another one; ``make`` may raise BadValueError."""

    shape: Shape
    make: Callable[[Any, Node, str], Any]

    def read(self, node: Node, name: str, problems: Problems) -> Any:
        """See ``Shape.read``."""
        return self.make(self.shape.read(node, name, problems), node, name)

    def schema(self) -> Schema:
        """See ``Shape.schema``."""
        return self.shape.schema()


# -- mappings with known keys ------------------------------------------------------------------
@attrs.frozen
class Field:
    """One key of a mapping; ``doc`` is for editors."""

    name: str
    shape: Shape
    doc: str
    required: bool = False


@attrs.frozen
class Found:
    """What a mapping says.

    Attributes:
        line: of its beginning.
        values: by key; a key that is absent, or whose value was wrong, is not there.
        entries: the keys that are written, wrong values too.
    """

    line: int
    values: Mapping[str, Any]
    entries: Mapping[str, Entry]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or what stands for it."""
        return self.values.get(key, default)

    def line_of(self, key: str) -> int:
        """Where a key stands, or the mapping when it is left out."""
        return self.entries[key].line if key in self.entries else self.line

    def __contains__(self, key: str) -> bool:
        return key in self.entries


@attrs.frozen
class Table:
    """A mapping with known keys; read as ``Found``.

    Attributes:
        what: how it is called in sentences, such as ``an entry of the timeline``.
        fields: of it.
        one_of: keys of which exactly one must be there.
        at_most_one: sets of keys, of each of which at most one may be there.
        schema_id: name under which its schema is defined once; empty to write it out.
    """

    what: str
    fields: tuple[Field, ...]
    one_of: tuple[str, ...] = ()
    at_most_one: tuple[tuple[str, ...], ...] = ()
    schema_id: str = ""

    def read(self, node: Node, name: str, problems: Problems) -> Found:  # noqa: ARG002
        """See ``Shape.read``."""
        if not isinstance(node.value, dict):
            raise BadValueError(node.line, f"{self.what} must be a mapping, not {shown(node)}")
        known = {field.name: field for field in self.fields}
        values = {}
        for key, entry in node.value.items():
            field = known.get(key)
            if field is None:
                names = list(known)
                problems.add(
                    entry.line,
                    f"unknown key {quoted(key)} in {self.what}: "
                    f"known keys are {listed(names)}{nearest(key, names)}",
                )
                continue
            try:
                values[key] = field.shape.read(entry.node, key, problems)
            except BadValueError as error:
                problems.add(error.line, error.what)
        self._complete(node.value, node.line, problems)
        return Found(node.line, values, node.value)

    def _complete(self, entries: Mapping[str, Entry], line: int, problems: Problems) -> None:
        for field in self.fields:
            if field.required and field.name not in entries:
                problems.add(line, f"{self.what} needs the key {field.name}")
        if self.one_of:
            given = [key for key in entries if key in self.one_of]
            if not given:
                problems.add(line, f"{self.what} needs one of {listed(self.one_of)}")
            for key in given[1:]:
                problems.add(
                    entries[key].line, f"{self.what} has {given[0]} and {key}: write one of them"
                )
        for names in self.at_most_one:
            given = [key for key in entries if key in names]
            for key in given[1:]:
                problems.add(
                    entries[key].line, f"{self.what} has {given[0]} and {key}: write one of them"
                )

    def schema(self) -> Schema:
        """See ``Shape.schema``; ``definition`` where it has a name."""
        return {"$ref": f"#/$defs/{self.schema_id}"} if self.schema_id else self.definition()

    def definition(self) -> Schema:
        """The schema, written out."""
        properties = {
            field.name: {"description": field.doc, **field.shape.schema()} for field in self.fields
        }
        found: Schema = {
            "type": "object", "properties": properties, "additionalProperties": False
        }  # fmt: skip
        if required := [field.name for field in self.fields if field.required]:
            found["required"] = required
        rules = []
        if self.one_of:
            rules.append({"oneOf": [{"required": [key]} for key in self.one_of]})
        rules.extend(_not_two(names) for names in self.at_most_one)
        if rules:
            found["allOf"] = rules
        return found


def _not_two(names: Sequence[str]) -> Schema:
    pairs = [[a, b] for at, a in enumerate(names) for b in names[at + 1 :]]
    return {"not": {"anyOf": [{"required": pair} for pair in pairs]}}
