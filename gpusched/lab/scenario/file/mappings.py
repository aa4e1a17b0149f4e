"""Lists and mappings in a scenario's files; see ``shapes``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.base.limits import SCENARIO_COUNT_MAX
from gpusched.config.values import BadValueError
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlEntry,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)
from gpusched.lab.scenario.file.value_types import NumberType, Schema, ValueType
from gpusched.lab.scenario.model.workload import ChoiceDraw, LogNormalDraw, UniformDraw

_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@frozen
class ListType:
    """A list; read as a tuple, without the items that are wrong (which are told)."""

    item: ValueType
    least: int = 0
    most: int = SCENARIO_COUNT_MAX

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> tuple[Any, ...]:
        """Value of the node; see ``ValueType.read``."""
        if not isinstance(node.value, tuple):
            raise BadValueError(node.line, f"{name} must be a list, not {describe_value(node)}")
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
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.least,
            "maxItems": self.most,
        }


@frozen
class MapType:
    """A mapping of any keys to values of one shape, such as labels."""

    value: ValueType
    keys: str = "keys of labels"
    pattern: str = _LABEL_KEY.pattern

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> dict[str, Any]:
        """Value of the node; see ``ValueType.read``."""
        if not isinstance(node.value, dict):
            raise BadValueError(node.line, f"{name} must be a mapping, not {describe_value(node)}")
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
        """JSON Schema of the value; see ``ValueType.schema``."""
        names = {"propertyNames": {"pattern": f"^({self.pattern})$"}} if self.pattern else {}
        return {"type": "object", "additionalProperties": self.value.schema(), **names}


@frozen
class UnionType:
    """Different shapes for different kinds of YAML values.

    Attributes:
        cases: first type of the node's value that fits, and its shape.
        what: said of anything else.
    """

    cases: tuple[tuple[tuple[type, ...], ValueType], ...]
    what: str

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> Any:
        """Value of the node; see ``ValueType.read``."""
        for types, shape in self.cases:
            # True is an int to Python, and to nobody else.
            if type(node.value) in types:
                return shape.read(node, name, problems)
        raise BadValueError(node.line, f"{name} must be {self.what}, not {describe_value(node)}")

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"anyOf": [shape.schema() for _, shape in self.cases]}


@frozen
class ConvertedType:
    """A shape whose value is made into another one; ``make`` may raise BadValueError."""

    shape: ValueType
    make: Callable[[Any, YamlNode, str], Any]

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> Any:
        """Value of the node; see ``ValueType.read``."""
        return self.make(self.shape.read(node, name, problems), node, name)

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return self.shape.schema()


# -- mappings with known keys ------------------------------------------------------------------
@frozen
class MappingField:
    """One key of a mapping; ``doc`` is for editors."""

    name: str
    shape: ValueType
    doc: str
    required: bool = False


@frozen
class MappingValues:
    """What a mapping says.

    Attributes:
        line: of its beginning.
        values: by key; a key that is absent, or whose value was wrong, is not there.
        entries: the keys that are written, wrong values too.
    """

    line: int
    values: Mapping[str, Any]
    entries: Mapping[str, YamlEntry]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or what stands for it."""
        return self.values.get(key, default)

    def line_of(self, key: str) -> int:
        """Where a key stands, or the mapping when it is left out."""
        return self.entries[key].line if key in self.entries else self.line

    def __contains__(self, key: str) -> bool:
        return key in self.entries


@frozen
class MappingType:
    """A mapping with known keys; read as ``Found``.

    Attributes:
        what: how it is called in sentences, such as ``an entry of the timeline``.
        fields: of it.
        one_of: keys of which exactly one must be there.
        at_most_one: sets of keys, of each of which at most one may be there.
        schema_id: name under which its schema is defined once; empty to write it out.
    """

    what: str
    fields: tuple[MappingField, ...]
    one_of: tuple[str, ...] = ()
    at_most_one: tuple[tuple[str, ...], ...] = ()
    schema_id: str = ""

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> MappingValues:  # noqa: ARG002
        """Value of the node; see ``ValueType.read``."""
        if not isinstance(node.value, dict):
            raise BadValueError(
                node.line, f"{self.what} must be a mapping, not {describe_value(node)}"
            )
        known = {field.name: field for field in self.fields}
        values = {}
        for key, entry in node.value.items():
            field = known.get(key)
            if field is None:
                names = list(known)
                problems.add(
                    entry.line,
                    f"unknown key {quoted(key)} in {self.what}: "
                    f"known keys are {list_names(names)}{did_you_mean(key, names)}",
                )
                continue
            try:
                values[key] = field.shape.read(entry.node, key, problems)
            except BadValueError as error:
                problems.add(error.line, error.what)
        self._complete(node.value, node.line, problems)
        return MappingValues(node.line, values, node.value)

    def _complete(
        self, entries: Mapping[str, YamlEntry], line: int, problems: ConfigProblems
    ) -> None:
        for field in self.fields:
            if field.required and field.name not in entries:
                problems.add(line, f"{self.what} needs the key {field.name}")
        if self.one_of:
            given = [key for key in entries if key in self.one_of]
            if not given:
                problems.add(line, f"{self.what} needs one of {list_names(self.one_of)}")
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
        """JSON Schema of the value; ``definition`` where it has a name."""
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


_CHOICES_MAX: Final = 1000
_WEIGHTS: Final = ListType(NumberType(0, 1e9), 1, _CHOICES_MAX)


@frozen
class DrawableType:
    """A value, or a mapping that says how it is drawn.

    Attributes:
        shape: of the value.
        number: as a number, for drawing even and log-normal ones; None where only choices are.
        back: of a drawn number.
    """

    shape: ValueType
    number: Callable[[Any], float] | None = None

    def read(self, node: YamlNode, name: str, problems: ConfigProblems) -> Any:
        """Value of the node; see ``ValueType.read``."""
        if not isinstance(node.value, dict):
            return self.shape.read(node, name, problems)
        for table in self._tables(name):
            if table.fields[0].name in node.value:
                found = table.read(node, name, problems)
                return self._made(found, node, name, problems)
        words = [table.fields[0].name for table in self._tables(name)]
        raise BadValueError(
            node.line, f"{name} must be a value, or a mapping with one of {list_names(words)}"
        )

    def _tables(self, name: str) -> list[MappingType]:
        choices = MappingType(
            f"the choice of {name}",
            (
                MappingField(
                    "choice", ListType(self.shape, 1, _CHOICES_MAX), "One of these.", True
                ),
                MappingField(
                    "weights", _WEIGHTS, "How likely each is; all the same when left out."
                ),
            ),
        )
        if self.number is None:
            return [choices]
        even = MappingType(
            f"the span of {name}",
            (
                MappingField("from", self.shape, "Lowest value.", True),
                MappingField("to", self.shape, "Highest value.", True),
            ),
        )
        bell = MappingType(
            f"the distribution of {name}",
            (
                MappingField("median", self.shape, "Half of the values are below.", True),
                MappingField("p95", self.shape, "95 % of the values are below.", True),
            ),
        )
        return [choices, even, bell]

    def _made(
        self, found: MappingValues, node: YamlNode, name: str, problems: ConfigProblems
    ) -> Any:
        wrong = any(key not in found.values for key in found.entries)
        if wrong or ("choice" not in found and len(found.values) < 2):
            # What is wrong has been told; a value is still needed to go on with.
            return next(iter(found.values.values()), None)
        if "choice" in found:
            return _choice(found, name, problems)
        assert self.number is not None
        first, second = (self.number(value) for value in found.values.values())
        low, high = (first, second) if next(iter(found.values)) in _FIRST else (second, first)
        if low > high:
            raise BadValueError(node.line, f"{name} goes from {low:g} down to {high:g}")
        if "median" in found:
            if low <= 0:
                raise BadValueError(node.line, f"{name} must have a median above 0")
            return LogNormalDraw(low, high)
        return UniformDraw(low, high)

    def schema(self) -> Schema:
        """JSON Schema of the value; see ``ValueType.schema``."""
        return {"anyOf": [self.shape.schema(), *(each.definition() for each in self._tables("it"))]}


_FIRST: Final = frozenset({"from", "median"})


def _choice(found: MappingValues, name: str, problems: ConfigProblems) -> ChoiceDraw:
    values = found.get("choice")
    weights = found.get("weights", (1.0,) * len(values))
    written = found.entries["choice"].node.value
    if isinstance(written, tuple) and len(written) == len(values) and len(weights) != len(values):
        problems.add(
            found.line_of("weights"),
            f"{name} has {len(values)} choices and {len(weights)} weights",
        )
        weights = (1.0,) * len(values)
    if not sum(weights):
        problems.add(found.line_of("weights"), f"the weights of {name} are all 0")
        weights = (1.0,) * len(values)
    return ChoiceDraw(values, tuple(weights))
