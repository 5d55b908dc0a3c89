"""The sentences that a decision owes to the outputs: what was not compared, and what is another product."""

from __future__ import annotations

from collections.abc import Iterable

from anchormatrix.records.outputs import OutputStatus, SessionOutput


def not_compared(outputs: Iterable[SessionOutput]) -> list[str]:
    """Why nothing vouches for the outputs of some forms, one sentence for each reason."""
    forms: dict[str, dict[str, None]] = {}
    for one in outputs:
        if one.status is OutputStatus.NOT_COMPARED:
            forms.setdefault(one.text, {})[one.form] = None
    return [f"Whether {', '.join(names)} computes the same picture: {text}." for text, names in forms.items()]


def products(outputs: Iterable[SessionOutput]) -> list[str]:
    """The forms that compute another picture by design, one sentence each: their speed is that of something else."""
    found = {one.form: one.text for one in outputs if one.status is OutputStatus.OTHER_PRODUCT}
    return [f"{form} is {text}." for form, text in found.items()]
