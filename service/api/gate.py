"""The API-key gate in front of every route: what a request needs is decided from its method and path alone.

| access | what | opened by |
| --- | --- | --- |
| open | `/v2/health/live`, `/v2/health/ready`, `/docs` and the OpenAPI document | anybody |
| inference | `infer`, `predict`, the repository index, all that is read with GET (`/metrics`, `/diagnose`) | any key |
| admin | everything else, so a new route that changes something is guarded before anyone thinks of it | admin key |

Without an admin key the inference key opens admin routes; without an inference key, inference routes are open.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.docs_page import DOCS, FILES
from service.api.errors import error_response
from service.errors import Forbidden, ServiceError, SettingsInvalid, Unauthorized

OPEN_PATHS = frozenset(
    {"/v2/health/live", "/v2/health/ready", DOCS, *(f"{DOCS}/{name}" for name in FILES), "/openapi.json"}
)
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SCHEME = b"bearer "
KEY_SUBPROTOCOL = "bearer"
"""The first of two WebSocket subprotocols, of which the second is the key."""


class Access(Enum):
    """What a request must show."""

    OPEN = "open"
    INFERENCE = "inference"
    ADMIN = "admin"


def required_access(method: str, path: str) -> Access:
    """What a request with this method and percent-decoded path must show, whether or not such a route exists."""
    if path in OPEN_PATHS:
        return Access.OPEN
    if method in READING_METHODS or path == "/v2/repository/index" or _is_inference(path):
        return Access.INFERENCE
    return Access.ADMIN


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """The keys of one server, as bytes on the wire; None where none is set."""

    inference: bytes | None
    admin: bytes | None

    @classmethod
    def from_secrets(cls, api_key: SecretStr | None, admin_api_key: SecretStr | None) -> ApiKeys:
        """Keys as the settings hold them.

        Raises:
            SettingsInvalid: a key is empty or framed by white space, so that no header could ever carry it.
        """
        return cls(_key_bytes("INFERLANE_API_KEY", api_key), _key_bytes("INFERLANE_ADMIN_API_KEY", admin_api_key))

    @property
    def is_enabled(self) -> bool:
        """Whether any request needs a key."""
        return self.inference is not None or self.admin is not None

    def refusal(self, access: Access, authorization: bytes | None) -> ServiceError | None:
        """The error to answer a request with that needs `access`, or None if its `Authorization` suffices.

        Compares in time that does not depend on where a wrong key differs.
        """
        if access is Access.OPEN or not self.is_enabled or (access is Access.INFERENCE and self.inference is None):
            return None
        token = _token(authorization)
        is_inference = self.inference is not None and hmac.compare_digest(token, self.inference)
        is_admin = self.admin is not None and hmac.compare_digest(token, self.admin)
        if is_admin or (is_inference and (access is Access.INFERENCE or self.admin is None)):
            return None
        if is_inference:
            return Forbidden("this API key is for inference alone; this operation needs the server's admin key")
        got = "a wrong API key" if token else "no API key"
        return Unauthorized(f"got {got}; send the header 'Authorization: Bearer <key>' with the server's key")


class ApiKeyGate:
    """Pure ASGI: refuses without reading the body what `keys` does not open; passes on everything else.

    Args:
        app: the application behind the gate, complete with its raw routes.
        keys: the server's keys.
        on_refusal: told the reason of each refusal, for the metrics.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, on_refusal: Callable[[str], None]) -> None:
        self._app = app
        self._keys = keys
        self._on_refusal = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection; the lifespan passes, a WebSocket counts as a GET."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        access = required_access(scope.get("method", "GET"), scope["path"])
        refusal = self._keys.refusal(access, _authorization(scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._on_refusal(refusal.reason)
        await error_response(refusal, overload_status=refusal.status)(scope, receive, send)


def _is_inference(path: str) -> bool:
    """Whether the path is `/v2/models/M/infer` or `/v2/models/M/versions/V/infer`, or `predict` for `infer`."""
    match path.split("/"):
        case ["", "v2", "models", _, "infer" | "predict"]:
            return True
        case ["", "v2", "models", _, "versions", _, "infer" | "predict"]:
            return True
    return False


def _authorization(scope: Scope) -> bytes | None:
    """The one `Authorization` header; None if there is none, or if several disagree about who asks.

    A browser can give a WebSocket no header but its subprotocols, so there they may carry the key.
    """
    values: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    match scope.get("subprotocols"):
        case [scheme, key] if scheme == KEY_SUBPROTOCOL and not values:
            return SCHEME + str(key).encode("latin-1")
    return values[0] if len(values) == 1 else None


def _token(authorization: bytes | None) -> bytes:
    if authorization is None or authorization[: len(SCHEME)].lower() != SCHEME:
        return b""
    return authorization[len(SCHEME) :].strip()


def _key_bytes(variable: str, secret: SecretStr | None) -> bytes | None:
    if secret is None:
        return None
    key = secret.get_secret_value()
    if not key or key != key.strip():
        raise SettingsInvalid(
            f"{variable} is empty or begins or ends with white space, so no request could carry it; "
            "give a key without white space around it, or leave the variable out to need none"
        )
    return key.encode()
