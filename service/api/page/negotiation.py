"""Whether an answer is for a person or a program, from `Accept` alone. Pure."""

from __future__ import annotations

PAGE = "text/html"
RIVALS = ("application/json", "text/plain")


def wants_page(accept: str) -> bool:
    """Whether `Accept` (RFC 9110, 12.5.1) names `text/html`, and neither JSON nor plain text before it.

    Wildcards are no names: `*/*` of curl and of clients without an opinion is answered with the document.
    """
    qualities = _qualities(accept)
    page = qualities.get(PAGE, 0.0)
    return page > 0.0 and all(page >= qualities.get(rival, 0.0) for rival in RIVALS)


def _qualities(accept: str) -> dict[str, float]:
    qualities: dict[str, float] = {}
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        qualities[name] = _quality(parameters)
    return qualities


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
