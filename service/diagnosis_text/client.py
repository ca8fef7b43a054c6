"""Asks a server for its diagnosis over HTTP; blocking."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import orjson

from service.errors import DiagnosisUnavailable

TIMEOUT_S = 60.0


def fetch(url: str, query: Mapping[str, str], *, api_key: str | None = None) -> dict[str, Any]:
    """The document that `GET /diagnose` answers.

    Args:
        url: of the server, such as `http://127.0.0.1:8000`.
        query: of the route.
        api_key: sent as bearer.

    Raises:
        DiagnosisUnavailable: the server cannot be reached, or answers something else; says what.
    """
    path = "/diagnose" + (f"?{urlencode(query)}" if query else "")
    document = ask(url, path, api_key=api_key)
    if not str(document.get("schema", "")).startswith("inferlane."):
        raise DiagnosisUnavailable(
            f"{url.rstrip('/')}{path} answered no diagnosis; is that an Inferlane server of this version?"
        )
    return document


def ask(
    url: str, path: str, *, method: str = "GET", body: Mapping[str, object] | None = None, api_key: str | None = None
) -> dict[str, Any]:
    """The JSON object that a route answers.

    Args:
        url: of the server.
        path: of the route, with its query.
        method: of the request.
        body: sent as JSON, where there is one.
        api_key: sent as bearer.

    Raises:
        DiagnosisUnavailable: the server cannot be reached, or answers something else; says what.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DiagnosisUnavailable(f"the server's address is '{url}'; write it as http://127.0.0.1:8000")
    asked = url.rstrip("/") + path
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    content = None if body is None else orjson.dumps(body)
    try:
        request = Request(asked, data=content, headers=headers, method=method)
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # its scheme was looked at
            document = orjson.loads(answer.read())
    except HTTPError as error:
        with error:
            raise DiagnosisUnavailable(f"{asked} answered {error.code}: {_error_text(error.read())}") from None
    except orjson.JSONDecodeError:
        raise DiagnosisUnavailable(f"{asked} answered no JSON; is that an Inferlane server?") from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DiagnosisUnavailable(f"{url} cannot be reached: {reason}; is the server running there?") from None
    if not isinstance(document, dict):
        raise DiagnosisUnavailable(f"{asked} answered no JSON object; is that an Inferlane server of this version?")
    return document


def _error_text(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
