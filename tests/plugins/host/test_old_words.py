"""Words of older configurations: they go on meaning what they meant, and a warning names today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusched.base.errors import ConfigError
from gpusched.cli.main import main
from gpusched.config.load import load_config
from gpusched.pluginhost.registry import load_policy

OLD_AND_NEW = [
    (
        "topology, arguments: {compact: wishes}",
        "topology, arguments: {compact: requested}",
        ['the value wishes of compact of plugin "topology" is called requested now'],
    ),
    (
        "quota, arguments: {firmWithinDeserved: false}",
        "quota, arguments: {nonPreemptibleWithinDeserved: false}",
        [
            'argument firmWithinDeserved of plugin "quota" is called nonPreemptibleWithinDeserved now'
        ],
    ),
    (
        "fairshare, arguments: {leftovers: byClass}",
        "fairshare, arguments: {remainder: byPriority}",
        [
            'argument leftovers of plugin "fairshare" is called remainder now',
            'the value byClass of remainder of plugin "fairshare" is called byPriority now',
        ],
    ),
]


def text(plugin: str) -> str:
    return f"tiers:\n- plugins:\n  - {{name: {plugin}}}\n"


def plugins(plugin: str) -> tuple[Any, ...]:
    return load_policy(load_config(text(plugin), source="f.yaml")).plugins


@pytest.mark.parametrize(("old", "new", "warnings"), OLD_AND_NEW)
def test_an_old_word_means_what_it_meant(old: str, new: str, warnings: list[str]) -> None:
    """Given the old word or today's, then the plugin is the same."""
    assert plugins(old) == plugins(new)


@pytest.mark.parametrize(("old", "new", "warnings"), OLD_AND_NEW)
def test_each_old_word_is_one_warning(
    old: str, new: str, warnings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given an old word, then check-config names today's, with the line, and the file is good."""
    file = tmp_path / "gpusched.yaml"
    for word, said in ((old, warnings), (new, [])):
        file.write_text(text(word))
        assert main(["check-config", str(file)]) == 0
        found = capsys.readouterr().err.splitlines()
        assert [each for each in found if " called " in each] == [
            f"warning: {file}:3: {each}" for each in said
        ]


def test_both_words_at_once_are_refused() -> None:
    """Given a key twice, under its old and its present name, then nobody guesses which counts."""
    both = "quota, arguments: {firmWithinDeserved: false, nonPreemptibleWithinDeserved: true}"
    with pytest.raises(ConfigError) as caught:
        plugins(both)
    assert caught.value.problems == (
        (
            'f.yaml:3: argument nonPreemptibleWithinDeserved of plugin "quota" is there twice: '
            "firmWithinDeserved is its old name"
        ),
    )
