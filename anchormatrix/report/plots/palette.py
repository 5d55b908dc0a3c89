"""Colours of figures by role, for light and for dark paper, and the CSS that applies them."""

from __future__ import annotations

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"

# role: (light, dark). Hues after Okabe and Ito, darkened or lightened until they read on either paper. Light colours
# differ from one another, for they are how a drawn shape is known to have a role.
PALETTE: dict[str, tuple[str, str]] = {
    "ink": ("#1c2630", "#e7ecf1"),
    "muted": ("#586572", "#9dabb8"),
    "grid": ("#d9dfe5", "#36414c"),
    "paper": ("#ffffff", "#12171c"),
    "panel": ("#f4f6f8", "#1b222a"),
    "few": ("#0072b2", "#5cb8ec"),
    "anchor": ("#c25f00", "#f5a742"),
    "good": ("#00785a", "#37c99d"),
    "bad": ("#b3261e", "#ff8f7d"),
    "band": ("#d3ece4", "#173c33"),
    "compute": ("#2f6fa7", "#4f97d4"),
    "exposed": ("#d55e00", "#f28a4b"),
    "hidden": ("#8fc7ea", "#2f6385"),
    "host": ("#7a5cb0", "#a98ee0"),
    "free": ("#9aa3ac", "#66717c"),
    "bubble": ("#b06a94", "#cc79a7"),
    "released": ("#e69f00", "#e69f00"),
    "waiting": ("#cdbb1d", "#f0e442"),
    "fast": ("#00785b", "#37c99d"),
    "slow": ("#8b959f", "#7a8692"),
}


def theme_css() -> str:
    """CSS that colours every figure: variables for light and dark, and one class per role for fill and stroke."""
    light = "".join(f"--{role}:{pair[0]};" for role, pair in PALETTE.items())
    dark = "".join(f"--{role}:{pair[1]};" for role, pair in PALETTE.items())
    roles = "".join(f".f-{role}{{fill:var(--{role})}}.s-{role}{{stroke:var(--{role})}}" for role in PALETTE)
    return (
        f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}@media print{{:root{{{light}}}}}{roles}"
    )
