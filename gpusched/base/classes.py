"""Decorators and parts of classes: ``frozen`` and ``define`` of attrs at a third of the cost, and former names of attributes.

attrs writes the repr, the comparison and the hash of each class as text and compiles it when the class is made, which
was a fifth of the start of a process that has several hundred and uses these of few. Here comparison and hash are
compiled when they are called first, and one function shows objects of all classes. They answer as those of attrs do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

import attrs

_BY_ATTRS: Final = frozenset({"cache_hash", "order", "unsafe_hash"})
"""Options of classes whose comparison and hash attrs writes: there are few."""

if TYPE_CHECKING:
    # Their classes are those of attrs to whoever checks types.
    from attrs import define as define  # noqa: PLC0414 - it is found here
    from attrs import frozen as frozen  # noqa: PLC0414
else:

    def define(cls: Any = None, **options: Any) -> Any:
        """``attrs.define``: a class with slots whose fields can be assigned."""
        return _decorate(cls, make=attrs.define, options=options)

    def frozen(cls: Any = None, **options: Any) -> Any:
        """``attrs.frozen``: a class with slots whose fields cannot be assigned, hashed by them."""
        return _decorate(cls, make=attrs.frozen, options=options)


def former_names(owner: str, names: Mapping[str, str]) -> Callable[[Any, str], Any]:
    """The ``__getattr__`` of a class whose attributes were renamed, which authors of plugins may use, with a warning.

    Args:
        owner: name of the class, for the warning.
        names: by former name, the name that the attribute has now.
    """

    def find(self: Any, name: str) -> Any:
        known = names.get(name)
        if known is None:
            raise AttributeError(f"{owner!r} object has no attribute {name!r}")
        warnings.warn(
            f"{owner}.{name} is called {owner}.{known} now", DeprecationWarning, stacklevel=2
        )
        return getattr(self, known)

    return find


def _decorate(cls: Any, *, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    if cls is None:
        return partial(_decorate, make=make, options=options)
    own = vars(cls)
    is_shown = options.get("repr", True) and "__repr__" not in own
    if _BY_ATTRS & options.keys() or issubclass(cls, BaseException):
        made = make(cls, **options | {"repr": False})
    else:
        made = make(cls, **options | {"repr": False, "eq": False})
        if options.get("eq", True) and "__eq__" not in own:
            _compare_fields(made, is_hashed=make is attrs.frozen)
    if is_shown:
        made.__repr__ = _show
    return made


def _compare_fields(made: Any, *, is_hashed: bool) -> None:
    """Let objects of a class be equal where their fields are.

    Raises:
        TypeError: a field has a comparison or a hash of its own.
    """
    fields = attrs.fields(made)
    if any(each.eq_key or each.hash is not None for each in fields):
        raise TypeError(f"{made.__qualname__}: fields compared in their own way need attrs.frozen")
    names = [each.name for each in fields if each.eq]
    equal = " and ".join(f"self.{name} == other.{name}" for name in names) or "True"
    _write_when_called(
        made,
        "__eq__",
        "(self, other):\n"
        " if other.__class__ is not self.__class__: return NotImplemented\n"
        f" return {equal}",
    )
    if not is_hashed:
        made.__hash__ = None
    elif "__hash__" not in vars(made):
        values = "".join(f"self.{name}, " for name in names)
        _write_when_called(made, "__hash__", f"(self): return hash(({values}))")


def _write_when_called(made: Any, name: str, text: str) -> None:
    """Give a class a method that is compiled when it is called for the first time.

    Args:
        made: the class.
        name: of the method.
        text: what follows its name in Python, made of names of fields only.
    """

    def write(*args: Any) -> Any:
        written: dict[str, Any] = {}
        exec(f"def {name}{text}", written)  # noqa: S102 - as attrs does: names of fields in our own source
        setattr(made, name, written[name])
        return written[name](*args)

    setattr(made, name, write)


@recursive_repr()
def _show(self: Any) -> str:
    cls = self.__class__
    shown = (
        f"{each.name}={(repr if each.repr is True else each.repr)(getattr(self, each.name, attrs.NOTHING))}"
        for each in attrs.fields(cls)
        if each.repr
    )
    return f"{cls.__qualname__.rsplit('>.', 1)[-1]}({', '.join(shown)})"
