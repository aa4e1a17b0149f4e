"""From ``arguments`` in the configuration to a plugin's own, typed and validated class.

The class is the annotation of the plugin's field ``args``. A field ``max_gpus: int`` is the key
``maxGpus``; a field that ends in ``_s`` and is a float is a duration, ``max_wait_s`` is
``maxWait: 90s``. The types that a file can hold are understood: bool, int, float, str, Literal,
``tuple[X, ...]``, ``Mapping[str, X]`` and unions of these with None.

A key or a value that was renamed goes on being read when the field says so in its metadata,
``{"formerly": "oldKey"}`` or ``{"renamed": {"old": "new"}}``; ``old_words`` warns of it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import attrs

from gpusched.api.meta.duration import NANOSECONDS, format_duration, parse_duration
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError, PluginFault
from gpusched.config.model import Argument, Config, PluginChoice
from gpusched.config.yaml_tree import describe_value, did_you_mean, list_names, quoted
from gpusched.pluginhost.guard import run_foreign_code


class _MistypedError(ValueError):
    """A value that does not fit its field; ``str()`` says what was expected."""


@lru_cache(maxsize=256)
def _type_hints(cls: type) -> Mapping[str, Any]:
    """Annotations of a class, resolved; compiling them anew is two thirds of loading a policy."""
    return types.MappingProxyType(typing.get_type_hints(cls))


def args_class(plugin: str, cls: type) -> type[attrs.AttrsInstance] | None:
    """The type of the plugin's field ``args``, None when it takes no arguments.

    Raises:
        PluginFault: the annotation cannot be resolved or is no attrs class.
    """
    if not attrs.has(cls):
        raise PluginFault(plugin, "load", f"{cls.__qualname__} is not an attrs class")
    if "args" not in attrs.fields_dict(cls):
        return None
    hint = run_foreign_code(plugin, "load", lambda: _type_hints(cls)["args"])
    if not (isinstance(hint, type) and attrs.has(hint)):
        raise PluginFault(plugin, "load", f"the type of its args, {hint!r}, is no attrs class")
    return hint


def build_args(
    cls: type[attrs.AttrsInstance], choice: PluginChoice, *, config: Config
) -> attrs.AttrsInstance:
    """Build the arguments of one plugin.

    Args:
        cls: what ``args_class`` found.
        choice: the plugin as configured.
        config: knows where it was written.

    Raises:
        ConfigError: unknown or mistyped or missing arguments, one sentence each.
        PluginFault: the class itself cannot be used.
    """
    hints = run_foreign_code(choice.name, "load", lambda: _type_hints(cls))
    fields = {
        argument_key(field, hints[field.name]): field for field in attrs.fields(cls) if field.init
    }
    where = f"plugin {quoted(choice.name)}"
    problems = []
    values: dict[str, Any] = {}
    formerly = _former_keys(fields)
    given = set()
    for named, said in choice.arguments.items():
        key = formerly.get(named, named)
        value = _current_value(fields[key], said) if key in fields else said
        place = config.at(choice.argument_lines.get(named, choice.line))
        if key in given:
            problems.append(
                f"{place}: argument {key} of {where} is there twice: "
                f"{fields[key].metadata['formerly']} is its old name"
            )
            continue
        given.add(key)
        if key not in fields:
            problems.append(
                f"{place}: unknown argument {quoted(key)} of {where}: "
                f"known arguments are {list_names(fields)}{did_you_mean(key, tuple(fields))}"
            )
            continue
        field = fields[key]
        try:
            read = _read(value, hints[field.name], field.name)
            _check_allowed(value, read, field, hints[field.name])
            values[field.alias or field.name] = read
        except _MistypedError as error:
            problems.append(f"{place}: argument {key} of {where} must be {error}")
    missing = [
        key for key, field in fields.items() if field.default is attrs.NOTHING and key not in given
    ]
    if missing:
        problems.append(
            f"{config.at(choice.line)}: {where} needs the argument {list_names(missing)}"
        )
    if problems:
        raise ConfigError(*problems)
    try:
        return run_foreign_code(choice.name, "arguments", lambda: cls(**values))
    except PluginFault as fault:
        raise _refused(fault, choice, fields, config=config) from fault


def old_words(cls: type[attrs.AttrsInstance], choice: PluginChoice, *, config: Config) -> list[str]:
    """One warning for each key and value of a plugin's arguments that has another name today.

    Args:
        cls: what ``args_class`` found.
        choice: the plugin as configured.
        config: knows where it was written.
    """
    hints = run_foreign_code(choice.name, "load", lambda: _type_hints(cls))
    fields = {argument_key(field, hints[field.name]): field for field in attrs.fields(cls)}
    formerly = _former_keys(fields)
    where = f"plugin {quoted(choice.name)}"
    warnings = []
    for named, said in choice.arguments.items():
        place = config.at(choice.argument_lines.get(named, choice.line))
        key = formerly.get(named, named)
        if key != named:
            warnings.append(f"{place}: argument {named} of {where} is called {key} now")
        field = fields.get(key)
        value = said if field is None else _current_value(field, said)
        if value is not said:
            warnings.append(f"{place}: the value {said} of {key} of {where} is called {value} now")
    return warnings


def _former_keys(fields: Mapping[str, attrs.Attribute[Any]]) -> dict[str, str]:
    """Keys of today by those that they had before."""
    return {
        field.metadata["formerly"]: key
        for key, field in fields.items()
        if "formerly" in field.metadata
    }


def _current_value(field: attrs.Attribute[Any], value: Argument) -> Argument:
    """The word of today for a value; the value itself where it has not been renamed."""
    renamed: Mapping[str, str] = field.metadata.get("renamed", {})
    return renamed.get(value, value) if isinstance(value, str) else value


def _check_allowed(value: Argument, read: Any, field: attrs.Attribute[Any], hint: Any) -> None:
    """Refuse what the usual validators of attrs refuse, in words of the file.

    Args:
        value: as it stands in the file.
        read: the same as the field's type.
        field: of the class of arguments.
        hint: its type.

    Raises:
        _MistypedError: it is none of the words that are allowed, or out of range.
    """
    if read is None or isinstance(read, tuple | Mapping):
        return
    low, high, words = _declared(field)
    if words:
        _read_literal(value, words)
    if not isinstance(read, int | float):
        return
    if (low is not None and read < low) or (high is not None and read > high):
        raise _MistypedError(f"{_range_text(low, high, field, hint)}, not {_value_text(value)}")


def _validators(validator: Any) -> list[Any]:
    """The validators that one joins; itself where it joins none."""
    joined = getattr(validator, "_validators", None)
    if joined is None:
        return [] if validator is None else [validator]
    return [inner for each in joined for inner in _validators(each)]


def _range_text(
    low: float | None, high: float | None, field: attrs.Attribute[Any], hint: Any
) -> str:
    def text(bound: float) -> str:
        duration = _is_duration(field.name, hint)
        return format_duration(round(bound * NANOSECONDS)) if duration else str(bound)

    kind = "a duration" if _is_duration(field.name, hint) else "a number"
    kind = "a whole number" if hint is int else kind
    if high is None:
        return f"{kind} of {text(low or 0)} or more"
    return (
        f"{kind} of {text(high)} or less"
        if low is None
        else (f"{kind} from {text(low)} to {text(high)}")
    )


def _refused(
    fault: PluginFault,
    choice: PluginChoice,
    fields: Mapping[str, attrs.Attribute[Any]],
    *,
    config: Config,
) -> Exception:
    """A validator's message as a sentence; what is no validator's message stays a fault."""
    error = fault.__cause__
    if not isinstance(error, ValueError | TypeError):
        return fault
    said = " ".join(str(error.args[0] if error.args else error).split())
    where = f"plugin {quoted(choice.name)}"
    for key, field in fields.items():
        # attrs begins its messages with the field's name in quotes.
        if said.startswith(f"'{field.name}' "):
            place = config.at(choice.argument_lines.get(key, choice.line))
            rest, _, _ = said.removeprefix(f"'{field.name}' ").partition(" (got ")
            return ConfigError(f"{place}: argument {key} of {where} {rest}")
    return ConfigError(f"{config.at(choice.line)}: arguments of {where}: {said}")


@frozen(kw_only=True)
class TunableArgument:
    """An argument that a search may vary, as a plugin declares it.

    Attributes:
        key: in the file.
        default: as the file would have it; None where there is none.
        words: that it can be; empty for a number.
        low, high: bounds of a number; None where the plugin declares none.
        is_duration: numbers are seconds.
    """

    key: str
    default: Argument
    words: tuple[str | bool, ...] = ()
    low: float | None = None
    high: float | None = None
    is_duration: bool = False


def tunable_arguments(cls: type[attrs.AttrsInstance]) -> tuple[TunableArgument, ...]:
    """Arguments of a plugin that are a choice of words, true or false, whole numbers or durations."""
    hints = _type_hints(cls)
    found = []
    for field in attrs.fields(cls):
        hint = hints[field.name]
        low, high, words = _declared(field)
        kinds = set(typing.get_args(hint) or (hint,)) - {type(None)}
        default = None if field.default is attrs.NOTHING else field.default
        if hint is bool:
            words = (False, True)
        elif typing.get_origin(hint) is Literal:
            words = typing.get_args(hint)
        elif not words and kinds != {int} and not _is_duration(field.name, hint):
            continue
        found.append(
            TunableArgument(
                key=argument_key(field, hint),
                default=default if isinstance(default, str | int | float | bool) else None,
                words=words,
                low=low,
                high=high,
                is_duration=_is_duration(field.name, hint),
            )
        )
    return tuple(found)


def _declared(
    field: attrs.Attribute[Any],
) -> tuple[float | None, float | None, tuple[str | bool, ...]]:
    """Bounds and words of a field by its validators."""
    low: float | None = None
    high: float | None = None
    words: tuple[str | bool, ...] = ()
    for each in _validators(field.validator):
        options = getattr(each, "options", None)
        words = tuple(options) if isinstance(options, tuple | list) else words
        bound, compare = getattr(each, "bound", None), getattr(each, "compare_op", "")
        if isinstance(bound, int | float):
            low = bound if compare == ">=" else low
            high = bound if compare == "<=" else high
    return low, high, words


def argument_key(field: attrs.Attribute[Any], hint: Any) -> str:
    """The key in the file for a field of an arguments class: camelCase, without the unit."""
    name = field.name
    if _is_duration(name, hint):
        name = name.removesuffix("_s")
    first, *rest = name.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _is_duration(name: str, hint: Any) -> bool:
    return name.endswith("_s") and float in (hint, *typing.get_args(hint))


def _read(value: Argument, hint: Any, name: str) -> Any:
    """The value as its field's type; a name that ends in ``_s`` makes floats durations."""
    origin = typing.get_origin(hint)
    if origin in {typing.Union, types.UnionType}:
        return _read_union(value, typing.get_args(hint), name)
    if origin is Literal:
        return _read_literal(value, typing.get_args(hint))
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, tuple):
            raise _MistypedError(f"a list, not {_value_text(value)}")
        return tuple(_read(each, item, name) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = typing.get_args(hint)[1]
        if not isinstance(value, Mapping):
            raise _MistypedError(f"a mapping, not {_value_text(value)}")
        return types.MappingProxyType({key: _read(each, item, name) for key, each in value.items()})
    if hint is float and name.endswith("_s"):
        return _read_duration(value)
    reader = _READERS.get(hint)
    if reader is None:
        raise _MistypedError(f"of a type that no file can hold ({hint!r})")
    return reader(value)


def _read_union(value: Argument, options: tuple[Any, ...], name: str) -> Any:
    if value is None and type(None) in options:
        return None
    refusals = []
    for option in options:
        if option is not type(None):
            try:
                return _read(value, option, name)
            except _MistypedError as error:
                refusals.append(str(error))
    if len(refusals) == 1:
        raise _MistypedError(refusals[0])
    refusals = [refusal.split(", not ")[0] for refusal in refusals]
    raise _MistypedError(f"{' or '.join(refusals)}, not {_value_text(value)}")


def _read_literal(value: Argument, options: tuple[Any, ...]) -> Any:
    for option in options:
        # type() too: True == 1, and nobody means it.
        if value == option and type(value) is type(option):
            return option
    names = [str(option) for option in options]
    close = did_you_mean(value, names) if isinstance(value, str) else ""
    raise _MistypedError(f"one of {list_names(names)}, not {_value_text(value)}{close}")


def _read_duration(value: Argument) -> float:
    if value == 0 and type(value) is int:
        return 0.0
    if not isinstance(value, str):
        raise _MistypedError(f"a duration such as 20ms, 90s or 1h30m, not {_value_text(value)}")
    try:
        return parse_duration(value) / NANOSECONDS
    except ValueError as error:
        raise _MistypedError(f"a duration: {error}") from error


def _read_bool(value: Argument) -> bool:
    if isinstance(value, bool):
        return value
    raise _MistypedError(f"true or false, not {_value_text(value)}")


def _read_int(value: Argument) -> int:
    # True is an int to Python, and to nobody else.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _MistypedError(f"a whole number, not {_value_text(value)}")


def _read_float(value: Argument) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _MistypedError(f"a number, not {_value_text(value)}")


def _read_str(value: Argument) -> str:
    if isinstance(value, str):
        return value
    raise _MistypedError(f"text, not {_value_text(value)} (quote it if it is meant)")


def _value_text(value: Argument) -> str:
    return "a mapping" if isinstance(value, Mapping) else describe_value(value)


_READERS: Final[Mapping[Any, Callable[[Argument], Any]]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
}
