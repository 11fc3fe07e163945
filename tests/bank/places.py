"""Places for banks in tests: a folder, or a bucket of an S3 server on this machine; and a proxy that misbehaves."""

from __future__ import annotations

import http.client
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from concal.bank.store.store import Store

BUCKET = "banks"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-nobody-may-see",
    "AWS_REGION": "us-east-1",
}
SOMEBODY = "AWS4-HMAC-SHA256 Credential=X/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Enough for a server that looks whether there is a signature, not what it says."""


@dataclass(frozen=True)
class Place:
    """Where banks go: `place / "bank"` is a folder's path or an address."""

    root: Path | str

    def __truediv__(self, name: str) -> Any:
        return self.root / name if isinstance(self.root, Path) else f"{self.root}/{name}"

    @property
    def is_folder(self) -> bool:
        return isinstance(self.root, Path)


def copy_bank(folder: Path, to: Path | str) -> Any:
    """A bank in a folder, once more: in another folder or on object storage."""
    if isinstance(to, Path):
        return Path(shutil.copytree(folder, to))
    objects: Any = Store.open(to).objects
    for part in ("data", "releases", "snapshots"):
        for path in sorted((folder / part).rglob("*")):
            if path.is_file():
                objects.put(str(path.relative_to(folder)), path.read_bytes())
    return to


def overwrite(store: Store, name: str, data: bytes) -> None:
    """Damage: other bytes under the same name. What this machine has kept is forgotten."""
    if store.cache is None:
        (Path(store.place) / name).write_bytes(data)
    else:
        objects: Any = store.objects
        objects.put(name, data)
        forget_cache(store)


def put_byte(store: Store, name: str, good: bytes, at: int, byte: int) -> None:
    """As `overwrite`, for one byte; in a folder it is written in its place, which is much quicker."""
    if store.cache is None:
        with (Path(store.place) / name).open("r+b") as file:
            file.seek(at)
            file.write(bytes([byte]))
    else:
        overwrite(store, name, good[:at] + bytes([byte]) + good[at + 1 :])


def forget_cache(store: Store) -> None:
    """As a machine that has read nothing yet."""
    if store.cache is not None:
        shutil.rmtree(store.cache.root, ignore_errors=True)


@dataclass
class Proxy:
    """Between concal and a server: `rule(method, path, count)` says what goes wrong with a request.

    "503", "409": answered so, not forwarded; "cut": forwarded, the answer cut in the middle; "lost": forwarded, no
    answer; "blind": forwarded without its condition; "denied": 403 with a text that repeats keys.
    `google`: what arrives says "only if absent" as Google does, and goes on as S3 does.
    """

    server: str
    rule: Callable[[str, str, int], str | None] = lambda method, path, count: None
    seen: list[str] = field(default_factory=list)
    google: bool = False

    def __enter__(self) -> Proxy:
        proxy = self
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                with lock:
                    proxy.seen.append(f"{self.command} {self.path}")
                    fault = proxy.rule(self.command, self.path, len(proxy.seen))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if fault in ("503", "409", "denied"):
                    status = 403 if fault == "denied" else int(fault)
                    keys = "".join(f"<AWSAccessKeyId>{v}</AWSAccessKeyId>" for v in ENVIRONMENT.values())
                    return self.send(status, f"<Error><Code>Trouble</Code>{keys}</Error>".encode())
                headers = {k: v for k, v in self.headers.items() if fault != "blind" or k.lower() != "if-none-match"}
                if proxy.google:
                    headers["authorization"] = SOMEBODY
                    if headers.pop("x-goog-if-generation-match", "") == "0":
                        headers["If-None-Match"] = "*"
                connection = http.client.HTTPConnection(proxy.server.removeprefix("http://"), timeout=30)
                connection.request(self.command, self.path, body, headers)
                reply = connection.getresponse()
                data = reply.read()
                if fault in ("lost", "cut"):
                    self.close_connection = True
                    if fault == "cut":
                        self.send(reply.status, data, dict(reply.getheaders()), shown=len(data) // 2)
                    return None
                return self.send(reply.status, data, dict(reply.getheaders()))

            def send(self, status: int, data: bytes, headers: dict[str, str] | None = None, shown: Any = None) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                        self.send_header(name, value)
                length = (headers or {}).get("Content-Length") if self.command == "HEAD" else str(len(data))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[:shown])

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
