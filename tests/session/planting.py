"""Exceptions planted in functions of sessions, wherever they were imported to."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpusched.api.meta.identity import GangKey

LAYERS = ("gpusched.session.", "gpusched.actions.", "gpusched.placement.", "gpusched_plugins")
OUTER = (
    "gpusched.session.containment.attempt", "gpusched.session.containment.contained_session", "gpusched.session.containment.set_aside",
    "gpusched.session.containment.culprit_search", "gpusched.session.decide", "gpusched.session.containment.suspects",
    "gpusched.session.containment.reduced_snapshot", "gpusched.session.containment.set_aside_status",
)  # fmt: skip
"""What contains is not itself contained."""


class Planted(RuntimeError):
    """What the tests plant."""


def about(value: object, name: str) -> bool:
    """Whether a value is, or is about, the object of that name."""
    if isinstance(value, GangKey):
        return value.name == name
    if isinstance(value, str):
        return value == name
    for field in ("key", "queue", "gang", "pod", "node"):
        inner = getattr(value, field, None)
        if isinstance(inner, GangKey):
            return inner.name == name
        if getattr(inner, "name", None) == name or (
            field in ("pod", "key") and str(getattr(inner, "name", "")).startswith(f"{name}-")
        ):
            return True
    own = str(getattr(value, "name", ""))
    return own == name or own.startswith(f"{name}-")


def functions() -> Iterator[tuple[str, Any, str, Callable[..., Any]]]:
    """Module, owner, name and function of all that sessions are made of, sorted."""
    for module_name in sorted(sys.modules):
        if not module_name.startswith(LAYERS) or module_name.startswith(OUTER):
            continue
        module = sys.modules[module_name]
        for name, value in sorted(vars(module).items()):
            if getattr(value, "__module__", None) != module_name:
                continue
            if inspect.isfunction(value):
                yield f"{module_name}.{name}", module, name, value
            elif inspect.isclass(value):
                for method, of in sorted(vars(value).items()):
                    if inspect.isfunction(of) and not method.startswith("__get"):
                        yield f"{module_name}.{name}.{method}", value, method, of


def everywhere(function: Callable[..., Any]) -> Iterator[tuple[Any, str]]:
    """Modules that hold the function under some name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(("gpusched.", "gpusched_plugins")):
            for name, value in list(vars(module).items()):
                if value is function:
                    yield module, name


def plant(
    patch: Any,
    owner: Any,
    name: str,
    *,
    on: str | None,
    error: type[Exception] = Planted,
    fired: list[str] | None = None,
) -> None:
    """Let a function raise where it is called with the object of that name; None: always."""
    original = vars(owner)[name]

    @functools.wraps(original)
    def planted(*args: Any, **how: Any) -> Any:
        if on is None or any(about(value, on) for value in (*args, *how.values())):
            if fired is not None:
                fired.append(name)
            raise error(f"planted in {name}")
        return original(*args, **how)

    if inspect.isclass(owner):
        patch.setattr(owner, name, planted)
        return
    for module, known_as in everywhere(original):
        patch.setattr(module, known_as, planted)


def called_with(name: str, run: Callable[[], object]) -> list[str]:
    """Labels of the functions that were called with the object of that name while something ran."""
    # By identity: initialisers of classes with the same fields have equal code.
    labels = {id(of.__code__): label for label, _, _, of in functions()}
    found: dict[str, None] = {}

    def look(frame: Any, event: str, _arg: object) -> None:
        label = labels.get(id(frame.f_code)) if event == "call" else None
        if label is None or label in found:
            return
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        values = [frame.f_locals.get(each) for each in code.co_varnames[:count]]
        if any(about(value, name) for value in values):
            found[label] = None

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(before)
    return sorted(found)
