"""How pages look: colours that people with any colour vision tell apart, light, dark and printed."""

from __future__ import annotations

from typing import Final

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
    """The style sheet."""
    light, dark = _hues(LIGHT, _GROUNDS[0]), _hues(DARK, _GROUNDS[1])
    shades = "".join(f".h{s}{{fill-opacity:{opacity}}}" for s, opacity in enumerate(SHADES))
    texts = "".join(
        f".t{k}.h{s}{{color:var(--t{k}{s})}}" for k in range(len(LIGHT)) for s in range(len(SHADES))
    )
    return (
        f":root{{{light}{_LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{dark}{_DARK}}}}}"
        f"@media print{{:root{{{light}{_LIGHT}}}}}{_RULES}{_DRAWN}{_RULES_BELOW}{_classes()}{shades}{texts}{_PRINT}"
    ).replace("\n", "")


def drawing_style() -> str:
    """The rules for drawings alone, for pictures that stand outside of a page."""
    light = "".join(f"--c{k}:{hue};" for k, hue in enumerate(LIGHT)) + _LIGHT
    dark = "".join(f"--c{k}:{hue};" for k, hue in enumerate(DARK)) + _DARK
    return (
        f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{_DRAWN}{_classes()}"
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


_LIGHT: Final = """--bg:#fff;--card:#f6f7f9;--ink:#14181d;--soft:#5a6370;--line:#dfe3e8;
--faint:#eef0f3;--good:#0a7a4b;--bad:#b3261e;--goodbg:#e6f4ed;--badbg:#fbe9e7;--accent:#0a5ea8;
color-scheme:light;"""
_DARK: Final = """--bg:#14181d;--card:#1c2128;--ink:#e8ebef;--soft:#a0a9b5;--line:#333b45;
--faint:#20262e;--good:#4cc38a;--bad:#ff8a80;--goodbg:#12301f;--badbg:#3a1a18;--accent:#7cbcf5;
color-scheme:dark;"""
_DRAWN: Final = """
svg path{vector-effect:non-scaling-stroke}
.cap{fill:none;stroke:var(--ink);stroke-width:1.5}
.ask{fill:none;stroke:var(--soft);stroke-width:1.5;stroke-dasharray:5 3}
path[class^=l]{fill:none;stroke-width:2}
.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 2}.d3{stroke-dasharray:9 3 2 3}.d4{stroke-dasharray:5 2}
.d5{stroke-dasharray:12 4}.d6{stroke-dasharray:1 3}.d7{stroke-dasharray:4 4}
path.soft{fill-opacity:.45}
.hair{stroke:var(--soft);stroke-width:1}
.median{stroke:var(--ink);stroke-width:3}
.p95{stroke:var(--bad);stroke-width:2}
path.dots{stroke-width:6;stroke-linecap:round;stroke-opacity:.8}
.mean{stroke:var(--ink);stroke-width:9;stroke-linecap:round}
.band{fill:var(--faint)}
.down{fill:var(--soft);fill-opacity:.35;stroke:var(--soft);stroke-width:1;stroke-dasharray:3 2}
.edge{stroke:var(--bg);stroke-width:1}
.cut{stroke:var(--ink);stroke-width:3}
.act{stroke:var(--soft);stroke-width:1}
.act.not{stroke:var(--bad);stroke-width:2}
.far{stroke:var(--soft);stroke-width:1;stroke-opacity:.45;stroke-dasharray:2 3}
"""
_RULES: Final = """
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;
font-variant-numeric:tabular-nums}
main,.top,footer{max-width:1440px;margin:0 auto;padding:0 24px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:0;line-height:1.3}
h3{font-size:14px;margin:0;line-height:1.3;overflow-wrap:anywhere}
.top{padding-top:24px}
.teaches{font-size:17px;margin:0 0 8px;max-width:70ch}
.meta{color:var(--soft);margin:0 0 16px;display:flex;flex-wrap:wrap;gap:2px 18px;padding:0;
list-style:none;font-size:13px}
.meta b{font-weight:600;color:var(--ink)}
.badge{display:inline-block;padding:3px 12px;border-radius:999px;font-weight:600;margin:0 8px 12px 0}
.good{color:var(--good)}.bad{color:var(--bad)}
.badge.good{background:var(--goodbg)}.badge.bad{background:var(--badbg)}
.cards{display:grid;grid-template-columns:repeat(4,1fr);gap:10px;margin:8px 0 20px;
padding:0;list-style:none}
.cards li{background:var(--card);border-radius:8px;padding:10px 14px}
.cards b{display:block;font-size:22px;line-height:1.25;font-weight:650}
.cards span{color:var(--soft);font-size:13px;display:block}
section{margin:0 0 28px}section,figure{scroll-margin-top:52px}
section>h2{margin-bottom:8px}
.verdicts{list-style:none;margin:0;padding:0;border-top:1px solid var(--line)}
.verdicts li{display:grid;grid-template-columns:88px 1fr;padding:5px 0;border-bottom:1px solid var(--line)}
.verdicts li>b{font-size:13px;padding-top:1px}
.verdicts small{display:block;color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.verdicts span{overflow-wrap:anywhere}
.wide{overflow-x:auto;max-width:100%}
.tall{max-height:640px;overflow:auto;content-visibility:auto;contain-intrinsic-size:auto 640px}
table{border-collapse:collapse;font-size:13px;min-width:min(100%,320px)}
caption{text-align:left;color:var(--soft);padding:4px 0}
th{text-align:left;font-weight:600;border-bottom:2px solid var(--line);padding:4px 12px 4px 0;
white-space:nowrap;vertical-align:bottom;background:var(--bg)}
td{border-bottom:1px solid var(--line);padding:3px 12px 3px 0;vertical-align:top}
#jobs td{white-space:nowrap}#jobs td:last-child{white-space:normal;min-width:240px}
td.n,th.n{text-align:right;white-space:nowrap}
tr.own td{font-weight:650}
td.best{font-weight:650;color:var(--good)}
thead th{position:sticky;top:0}
th button{all:unset;cursor:pointer;padding-right:14px;position:relative}
th button:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
th[aria-sort] button::after{content:"\\2191";position:absolute;right:0}
th[aria-sort=descending] button::after{content:"\\2193"}
tr.hot td{background:var(--goodbg)}
details>summary{cursor:pointer;color:var(--soft);font-size:13px;margin:4px 0}
#published h3{margin-top:10px}
figure{margin:0 0 28px;min-width:0}
figcaption{margin-bottom:2px}
.note{color:var(--soft);font-size:13px;margin:2px 0 0;max-width:110ch}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 0;padding:0;font-size:13px}
.legend button{all:unset;cursor:pointer}
.legend button:focus-visible,.area:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.legend button:hover{text-decoration:underline}
.sw{display:inline-block;width:12px;height:12px;margin-right:6px;background:var(--k);
vertical-align:-1px;border-radius:2px}
.sw[class*=" l"],.sw.cap,.sw.ask{height:0;border-top:3px solid var(--k,var(--ink));background:none;
vertical-align:4px;border-radius:0;width:18px}
.sw.d1,.sw.d4,.sw.d5,.sw.d7{border-top-style:dashed}.sw.d2,.sw.d6{border-top-style:dotted}.sw.d3{border-top-style:double}
.sw.cap{border-top:2px solid var(--ink)}.sw.ask{border-top:2px dashed var(--soft)}
.sw.cutkey{width:3px;background:var(--ink)}
.sw.downkey{background:color-mix(in srgb,var(--soft) 35%,transparent);outline:1px dashed var(--soft)}
.sw.boxkey{background:linear-gradient(90deg,var(--soft) 0 5px,var(--ink) 5px 7px,var(--soft) 7px)}
.sw.p95key{width:2px;background:var(--bad)}
.sw.meankey{border-radius:50%;width:9px;height:9px;background:var(--ink)}
.sw.dotkey{border-radius:50%;width:7px;height:7px;background:var(--soft);vertical-align:1px}
.sw.linekey{height:1px;background:var(--soft);vertical-align:4px;width:16px}
.plot{--left:88px}
.yname{font-size:12px;color:var(--soft);margin:4px 0 5px;min-height:8px}
.scroll{overflow-y:auto;overflow-x:hidden;padding:6px 0}
.box{display:flex;height:var(--tall)}
.ys{flex:0 0 var(--left);position:relative;font-size:12px;color:var(--soft)}
.ys span{position:absolute;right:8px;transform:translateY(50%);line-height:1;max-width:calc(var(--left) - 8px);
overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.ys span[style^=top]{transform:translateY(-50%);line-height:1.2}
.area{position:relative;flex:1;min-width:0;border-left:1px solid var(--line);border-bottom:1px solid var(--line);
touch-action:pan-y}
.js .timed .area{cursor:crosshair}
.grid b{position:absolute;top:0;bottom:0;width:1px;background:var(--faint)}
svg.view{position:absolute;inset:0;width:100%;height:100%;display:block}
.over{position:absolute;inset:0;overflow:hidden;pointer-events:none;font-size:11px}
.over span{position:absolute;transform:translateY(-50%);padding:0 3px;overflow:hidden;white-space:nowrap;
line-height:1.1}
.over span.out{color:var(--soft);opacity:.7}
.xs{position:relative;height:20px;margin-left:var(--left);font-size:12px;color:var(--soft)}
.xs span{position:absolute;transform:translateX(-50%);top:2px;white-space:nowrap}
"""
_RULES_BELOW: Final = """
.marks{margin-left:var(--left);height:6px}.marks svg{width:100%;height:100%;display:block}
.dim>path{opacity:.16}.dim>g path{opacity:1}.dim>.band{opacity:1}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:0 32px}
.many{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:0 24px}
.many figure{margin-bottom:14px}.note+.many,.note+.pair{margin-top:10px}.wide+.pair{margin-top:14px}
.plot.fixed{--left:110px}
#share.fixed,.pair .plot,.many .plot{--left:44px}
#bar{position:sticky;top:0;z-index:5;background:var(--bg);border-bottom:1px solid var(--line);
padding:6px 0;margin-bottom:18px;display:flex;gap:12px;align-items:center;flex-wrap:wrap;font-size:13px}
#bar[hidden]{display:none}
#bar button,.filter input{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);
border-radius:6px;padding:2px 10px;cursor:pointer}
.filter input{cursor:text;padding:4px 10px;min-width:min(100%,260px)}
.filter{display:none}.js .filter{display:block;margin:6px 0}
#range{min-width:150px;font-weight:600}
#picked:empty{display:none}
#mini{position:relative;flex:1;min-width:160px;height:26px;background:var(--card);border-radius:4px;
overflow:hidden;touch-action:none;cursor:pointer}
#mini svg{position:absolute;inset:0;width:100%;height:100%}
#mini i{position:absolute;top:0;bottom:0;border:2px solid var(--accent);border-radius:4px;min-width:6px}
.brush{position:absolute;top:0;bottom:0;background:var(--accent);opacity:.22;pointer-events:none}
.hair2{position:absolute;top:0;bottom:0;width:1px;background:var(--soft);pointer-events:none}
#tip{position:fixed;z-index:9;max-width:min(340px,90vw);background:var(--bg);border:1px solid var(--line);
border-radius:8px;box-shadow:0 4px 16px #0003;padding:7px 11px;font-size:13px;pointer-events:none;
overflow-wrap:anywhere}
#tip b{display:block}#tip dl{display:grid;grid-template-columns:auto auto;gap:0 14px;margin:2px 0 0}
#tip dt{color:var(--soft)}#tip dd{margin:0;text-align:right}#tip p{margin:3px 0 0;color:var(--soft)}
.acts{max-height:300px;overflow:auto;margin:0;padding:0;list-style:none;font-size:13px}
.acts li{display:grid;grid-template-columns:80px 1fr;padding:2px 0;overflow-wrap:anywhere}
.acts time{color:var(--soft)}
footer{color:var(--soft);font-size:13px;padding-bottom:40px;overflow-wrap:anywhere}
a{color:var(--accent)}
.back{margin:0 0 6px;font-size:13px}
svg.spark{width:140px;height:22px;display:block;background:var(--card)}
ul.runs{list-style:none;padding:0;margin:0 0 20px}ul.runs b{margin-right:8px}
table.compared td{min-width:120px}table.compared tbody th{vertical-align:top;padding-top:3px}
.pair .rows,.plot.rows{--left:88px}.pair .plot.rows{--left:76px}table.compared th[scope=row]{border-bottom:1px solid var(--line);font-weight:400}
td small{display:block;color:var(--soft);font-weight:400}
.mark{font-style:normal;font-size:11px;border:1px solid currentColor;border-radius:4px;padding:0 4px}
table.runs td:last-child{min-width:280px}table.runs td:first-child{white-space:nowrap}
table.runs td{padding-top:5px;padding-bottom:5px}
@media(min-width:1300px){.cards{grid-template-columns:repeat(var(--n),1fr)}}
@media(max-width:640px){main,.top,footer{padding-left:14px;padding-right:14px}h1{font-size:21px}
.teaches{font-size:15px}.plot{--left:56px}.plot.fixed{--left:84px}.cards{grid-template-columns:1fr 1fr}
.cards b{font-size:18px}#range{min-width:0}.verdicts li{grid-template-columns:76px 1fr}
html:not(.js) .xs span:nth-child(even),.fixed .xs span:nth-child(even){display:none}}
"""
_PRINT: Final = """
@media print{body{font-size:11px}main,.top,footer{max-width:none;padding:0}#bar,.filter,#tip{display:none}
figure,.cards li,tr{break-inside:avoid}.scroll,.tall,.acts{max-height:none!important;overflow:visible;content-visibility:visible}
details{display:none}.wide{overflow:visible}#jobs table{font-size:9px}#jobs td,#jobs th{white-space:normal;padding-right:6px}#jobs td:last-child{min-width:0}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
