"""An identity provider for tests: as much of OpenID Connect as Streamlit asks for, one person, no password."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

__all__ = ["CLIENT", "EMAIL", "provider"]

CLIENT: Final = "shardscape-tests"
EMAIL: Final = "somebody@example.org"


class _Provider(ThreadingHTTPServer):
    """Knows one key, and which codes were given out for which nonce."""

    daemon_threads = True

    def __init__(self) -> None:
        from joserfc.jwk import RSAKey

        super().__init__(("127.0.0.1", 0), _Answers)
        self.key: Any = RSAKey.generate_key(2048, parameters={"kid": "one", "alg": "RS256", "use": "sig"})
        self.nonces: dict[str, str] = {}
        # Another site than the dashboard at 127.0.0.1, as providers are.
        self.address = f"http://localhost:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: _Provider

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing of requests."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        address = self.server.address
        if parts.path == "/.well-known/openid-configuration":
            self._json(
                {
                    "issuer": address,
                    "authorization_endpoint": f"{address}/authorize",
                    "token_endpoint": f"{address}/token",
                    "jwks_uri": f"{address}/keys",
                    "end_session_endpoint": f"{address}/leave",
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                }
            )
        elif parts.path == "/keys":
            self._json({"keys": [self.server.key.as_dict(private=False)]})
        elif parts.path == "/authorize":
            code = secrets.token_urlsafe(8)
            self.server.nonces[code] = asked.get("nonce", "")
            state = {"state": asked["state"]}
            yes = f"{asked['redirect_uri']}?{urlencode({'code': code, **state})}"
            no = f"{asked['redirect_uri']}?{urlencode({'error': 'access_denied', **state})}"
            page = f'<a id="yes" href="{_text(yes)}">Sign in</a> <a id="no" href="{_text(no)}">Cancel</a>'
            self._send(200, page.encode(), "text/html")
        elif parts.path == "/leave":
            self._send(302, b"", "text/plain", Location=asked["post_logout_redirect_uri"])
        else:
            self._send(404, b"", "text/plain")

    def do_POST(self) -> None:
        from joserfc import jwt

        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        now = int(time.time())
        claims = {
            "iss": self.server.address,
            "sub": "1",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 600,
            "email": EMAIL,
            "nonce": self.server.nonces.pop(asked["code"][0]),
        }
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.server.key)
        access = base64.urlsafe_b64encode(secrets.token_bytes(12)).decode()
        self._json({"access_token": access, "token_type": "Bearer", "expires_in": 600, "id_token": token})

    def _json(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), "application/json")

    def _send(self, status: int, content: bytes, mime: str, **heads: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": mime, "Content-Length": str(len(content)), **heads}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _text(address: str) -> str:
    return address.replace("&", "&amp;").replace('"', "&quot;")


@contextmanager
def provider() -> Iterator[str]:
    """The address of a provider that runs meanwhile."""
    server = _Provider()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
