"""How pages look: colours that people with any colour vision tell apart, light, dark and printed.

Rules are the style sheets below assets/; here the colours of jobs and queues are worked into them.
"""

from __future__ import annotations

from typing import Final

from gpusched.lab.report.pages.asset_files import read_asset, read_declarations

LIGHT: Final = (
    "#0a6cb0", "#cc8400", "#0b8f6a", "#c04fa0", "#3399d4", "#d05a10", "#7f7a00", "#5b4bb5",
    "#8a8f98",
)  # fmt: skip
DARK: Final = (
    "#4a9fe0", "#f0b03c", "#2fb58c", "#dd85c2", "#85cdf5", "#f0803c", "#bdb742", "#9d90ee",
    "#8a919c",
)  # fmt: skip
"""Hues by number, the last for all others; neighbours differ in lightness as well as in hue."""
SHADES: Final = (1.0, 0.76, 0.56, 0.88)
"""Opacity of the shades of a hue."""
_GROUNDS: Final = ("#ffffff", "#14181d")
_TEXTS: Final = ("#14181d", "#ffffff")


def style_sheet() -> str:
    """The style sheet of pages, in one line."""
    bright, dark = read_declarations("light.css"), read_declarations("dark.css")
    bright, dark = _hues(LIGHT, _GROUNDS[0]) + bright, _hues(DARK, _GROUNDS[1]) + dark
    shades = "".join(f".h{s}{{fill-opacity:{opacity}}}" for s, opacity in enumerate(SHADES))
    texts = "".join(
        f".t{k}.h{s}{{color:var(--t{k}{s})}}" for k in range(len(LIGHT)) for s in range(len(SHADES))
    )
    rules = "".join(map(read_asset, ("page.css", "drawing.css", "tools.css")))
    return (
        f":root{{{bright}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"@media print{{:root{{{bright}}}}}{rules}{_classes()}{shades}{texts}"
        f"{read_asset('print.css')}"
    ).replace("\n", "")


def drawing_style() -> str:
    """The rules for drawings alone, in one line, for pictures that stand outside of a page."""
    light = "".join(f"--c{k}:{hue};" for k, hue in enumerate(LIGHT))
    dark = "".join(f"--c{k}:{hue};" for k, hue in enumerate(DARK))
    light, dark = light + read_declarations("light.css"), dark + read_declarations("dark.css")
    return (
        f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{read_asset('drawing.css')}{_classes()}{read_asset('picture.css')}"
    ).replace("\n", "")


def _classes() -> str:
    return "".join(
        f".f{k}{{fill:var(--c{k});--k:var(--c{k})}}.l{k}{{stroke:var(--c{k});--k:var(--c{k})}}"
        for k in range(len(LIGHT))
    )


def _hues(hues: tuple[str, ...], ground: str) -> str:
    parts = []
    for k, hue in enumerate(hues):
        parts.append(f"--c{k}:{hue};")
        for s, opacity in enumerate(SHADES):
            best = max(_TEXTS, key=lambda text: contrast_ratio(text, _mixed(hue, ground, opacity)))
            parts.append(f"--t{k}{s}:{best};")
    return "".join(parts)


def _channels(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def _mixed(colour: str, ground: str, opacity: float) -> str:
    pairs = zip(_channels(colour), _channels(ground), strict=True)
    return "#" + "".join(f"{round(255 * (a * opacity + b * (1 - opacity))):02x}" for a, b in pairs)


def contrast_ratio(one: str, other: str) -> float:
    """Ratio of the luminances of two colours as WCAG counts it, 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
