"""The gate that every request passes: who may ask, from where, and how much they may send."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.service.errors import ServiceError
from planner.service.settings import Settings

API = "/api/v1"
OPEN = (f"{API}/health", f"{API}/session")
COOKIE = "planner_session"
SESSION_S = 12 * 3600
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
SHORTEST_TOKEN = 16

# What is no page loads nothing and is shown in no frame; pages bring a policy of their own.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "SAMEORIGIN",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Sessions:
    """Signed cookies that stand for the token, so that links, images and event streams need no header.

    A cookie is its time of expiry and an HMAC of it under the token: nothing is kept, and a new token ends them all.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, given: str) -> bool:
        """Whether `given` is the token; takes as long whichever characters differ."""
        return hmac.compare_digest(hashlib.sha256(given.encode(errors="replace")).digest(), self._digest())

    def _digest(self) -> bytes:
        return hashlib.sha256(self._token).digest()

    def new(self) -> str:
        """A cookie's value, good for `SESSION_S`."""
        expiry = str(int(time.time()) + SESSION_S)
        return f"{expiry}.{self._signature(expiry)}"

    def is_valid(self, value: str) -> bool:
        """Whether `new` gave it out and it has not expired."""
        expiry, _, signature = value.partition(".")
        if not expiry.isdecimal() or len(expiry) > 12 or not signature.isascii():
            return False
        return hmac.compare_digest(signature, self._signature(expiry)) and int(expiry) > time.time()

    def _signature(self, expiry: str) -> str:
        return hmac.new(self._token, f"session {expiry}".encode(), hashlib.sha256).hexdigest()

    def admits(self, headers: Headers) -> bool:
        """Whether a request brings the token or a session."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(token.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self.is_valid(cookie.value)


class Gate:
    """ASGI middleware. Refuses foreign hosts and origins (DNS rebinding, forged requests), callers without the token,
    and bodies that are too large, too slow, or not JSON; puts protective headers on every answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limits = settings.limits
        self._sessions = None if settings.token is None else Sessions(settings.token)
        self._hosts = allowed_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no web sockets: the server refuses what is not accepted

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check(scope, headers)
            if scope["method"] not in SAFE_METHODS:
                receive = await self._with_body(scope, headers, receive)
        except ServiceError as error:
            await error.response()(scope, receive, send_protected)
            return
        await self._app(scope, receive, send_protected)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and name_of(host) not in self._hosts:
            raise ServiceError(
                403, f"this service is not called {host[:100]!r}; start it with --allow-host to change it"
            )
        if not scope["path"].startswith("/api/"):
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit_host(origin) != host.lower():
            raise ServiceError(403, "requests from other sites are refused")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise ServiceError(403, "requests from other sites are refused")
        if self._sessions is None or scope["path"] in OPEN or not scope["path"].startswith(API):
            return
        if not self._sessions.admits(headers):
            challenge = {"WWW-Authenticate": 'Bearer realm="planner"'}
            raise ServiceError(401, "a bearer token is required", headers=challenge)

    async def _with_body(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """A `receive` that gives the whole body at once, when it has been found acceptable."""
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise ServiceError(415, "the body must be JSON, with Content-Type: application/json")
        most = self._limits.body_bytes
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared[:20]) > most:
            raise too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        break
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large(most)
        except TimeoutError:
            raise ServiceError(408, f"the body did not come within {self._limits.body_s:g} s") from None
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        return replay


def too_large(most: int) -> ServiceError:
    """A body beyond the limit; the connection is closed, lest the rest of it be read."""
    return ServiceError(413, f"the body is larger than {most:,} bytes", headers={"Connection": "close"})


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """The names that a Host header may have; None: any. Behind a token any will do unless names are given: a page that
    a rebound name serves has neither token nor cookie."""
    if settings.token is not None and not settings.hosts:
        return None
    names: Iterable[str] = ("localhost", "127.0.0.1", "::1", settings.host, *settings.hosts)
    return frozenset(name.lower() for name in names)


def name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def urlsplit_host(origin: str) -> str | None:
    """The host and port of an origin; None where it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
