"""What a search may vary: arguments of the policy's plugins, with the bounds that they declare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from gpusched.api.meta.duration import NANOSECONDS, parse_duration
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.config.model import Config, PluginChoice
from gpusched.config.yaml_tree import did_you_mean, list_names
from gpusched.pluginhost.args import TunableArgument, args_class, tunable_arguments
from gpusched.pluginhost.registry import plugin_class

_VARY: Final = re.compile(r"(?P<plugin>[^.=]+)\.(?P<key>[^.=]+)(?:=(?P<said>.+))?")
_RANGE: Final = re.compile(r"(?P<low>[^.]+)\.\.(?P<high>[^.]+)")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
LOG_FROM: Final = 1000
"""A range of more numbers is searched by their size: from 1 to 10 as closely as from 1,000 to 10,000."""


@frozen(kw_only=True)
class SearchedArgument:
    """One dimension of the search.

    Attributes:
        words: as the file has them; empty for a number.
        low, high: whole numbers, of a duration seconds.
        is_duration: it is written with its unit.
        now: its value in the configuration, as text; empty where it has none.
    """

    plugin: str
    key: str
    words: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    is_duration: bool = False
    now: str = ""

    @property
    def path(self) -> str:
        """The key of ``--set``."""
        return f"plugins.{self.plugin}.{self.key}"

    @property
    def by_size(self) -> bool:
        """Whether small numbers are told apart more closely than large ones."""
        return not self.words and self.low > 0 and self.high - self.low > LOG_FROM

    def text(self, value: object) -> str:
        """A value as the file has it."""
        return f"{value}s" if self.is_duration else str(value)

    @property
    def span(self) -> str:
        """What it may be, for people."""
        if self.words:
            return ", ".join(self.words)
        return f"{self.text(self.low)} to {self.text(self.high)}"


def search_space(config: Config, vary: Sequence[str]) -> tuple[SearchedArgument, ...]:
    """What is varied: what is named, or everything whose range plugins declare.

    Args:
        config: whose plugins count.
        vary: ``PLUGIN.ARGUMENT``, ``PLUGIN.ARGUMENT=LOW..HIGH`` or ``=WORD,WORD``.

    Raises:
        UsageError: one that is not there, has no range, or cannot be so.
    """
    known = {
        (choice.name, each.key): (choice, each)
        for tier in config.tiers
        for choice in tier.plugins
        for each in _arguments(choice)
    }
    if vary:
        found = [_named(text, known) for text in vary]
        twice = [each.path for each in found]
        if len(set(twice)) < len(twice):
            raise UsageError("--vary names an argument twice")
        return tuple(found)
    return tuple(
        _searched(choice, each, each.low, each.high)
        for choice, each in known.values()
        if each.words or (each.low is not None and each.high is not None)
    )


def _arguments(choice: PluginChoice) -> Iterable[TunableArgument]:
    arguments = args_class(choice.name, plugin_class(choice.name))
    return () if arguments is None else tunable_arguments(arguments)


def _named(
    text: str, known: dict[tuple[str, str], tuple[PluginChoice, TunableArgument]]
) -> SearchedArgument:
    match = _VARY.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--vary takes PLUGIN.ARGUMENT, or PLUGIN.ARGUMENT=LOW..HIGH, not {text!r}"
        )
    path = (match["plugin"], match["key"])
    if path not in known:
        names = [".".join(each) for each in known]
        wanted = ".".join(path)
        raise UsageError(
            f"--vary {text}: the configuration has no {wanted} that can be varied: there are "
            f"{list_names(names)}{did_you_mean(wanted, names)}"
        )
    choice, argument = known[path]
    said = match["said"]
    if said is None:
        if not argument.words and (argument.low is None or argument.high is None):
            raise UsageError(f"--vary {text} needs a range, such as {text}={_example(argument)}")
        return _searched(choice, argument, argument.low, argument.high)
    ranged = _RANGE.fullmatch(said)
    if ranged is None:
        return _searched(
            choice, attrs.evolve(argument, words=_words(text, said, argument)), None, None
        )
    if argument.words:
        raise UsageError(f"--vary {text}: {argument.key} is one of {_spoken(argument)}, no number")
    low, high = (_number(text, ranged[end], argument) for end in ("low", "high"))
    if (
        low > high
        or (argument.low or 0) > low
        or (argument.high is not None and high > argument.high)
    ):
        raise UsageError(f"--vary {text}: {said} is no range within what {choice.name} allows")
    return _searched(choice, argument, low, high)


def _words(text: str, said: str, argument: TunableArgument) -> tuple[str | bool, ...]:
    words = tuple(each.strip() for each in said.split(","))
    known = tuple(map(_word_text, argument.words))
    odd = [each for each in words if argument.words and each not in known]
    if odd or len(set(words)) < len(words) or not all(words):
        raise UsageError(
            f"--vary {text}: write words of {_spoken(argument)} with commas between, or LOW..HIGH"
        )
    return words


def _spoken(argument: TunableArgument) -> str:
    return ", ".join(map(_word_text, argument.words)) or _example(argument)


def _example(argument: TunableArgument) -> str:
    return "30s..10m" if argument.is_duration else "1..100"


def _word_text(word: str | bool) -> str:
    return str(word).lower() if isinstance(word, bool) else word


def _number(text: str, said: str, argument: TunableArgument) -> int:
    if argument.is_duration:
        try:
            return parse_duration(said) // NANOSECONDS
        except ValueError as error:
            raise UsageError(f"--vary {text}: {error}") from None
    if _WHOLE.fullmatch(said) is None:
        raise UsageError(f"--vary {text}: {said!r} is no whole number")
    return int(said)


def _searched(
    choice: PluginChoice, argument: TunableArgument, low: float | None, high: float | None
) -> SearchedArgument:
    now = choice.arguments.get(argument.key, argument.default)
    if isinstance(now, bool):
        text = _word_text(now)
    elif argument.is_duration and isinstance(now, int | float):
        text = f"{now:g}s"
    else:
        text = "" if now is None else str(now)
    return SearchedArgument(
        plugin=choice.name,
        key=argument.key,
        words=tuple(map(_word_text, argument.words)),
        low=round(low or 0),
        high=round(high or 0),
        is_duration=argument.is_duration,
        now=text,
    )
