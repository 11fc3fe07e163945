"""A bank on object storage (S3, Google Cloud Storage, Azure), through obstore.

There is no lock here. A file is put under a name nobody else uses; the manifest of the next version is created on the
condition that its name is free, so of several writers exactly one wins. Three things make that safe on real servers:

- After a time-out one's own write may have landed. When the name is taken the bytes are read back: a manifest has its
  commit's random id in it, so equal bytes are one's own.
- "409 conflict" means that two conditional writes met, not that the name is taken; like 503 it is tried again, later
  each time.
- Some servers accept the condition and overwrite. `prepare` tries it and refuses them.

Credentials come from where the provider's own tools look for them, and no message shows what a server answered beside
its status and error code: servers repeat keys and signatures in the text.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from concal.bank.store.objects import FOLDERS, Listed
from concal.errors import BankError, first_few

Answer = TypeVar("Answer")

PATIENCE = 60.0
"""Seconds a request is tried again for once the storage has answered: a server's bad minute should not cost a night."""
FIRST_CONTACT = 5.0
"""Seconds for the first request of a process when nobody answers: an address that is wrong stays wrong."""
PIECE = 1 << 24
"""Bytes per request of a large read: a cut connection costs one piece."""
FORGOTTEN = b"this version was pruned; its number stays taken\n"
"""What stands in the place of a manifest that was pruned, so that its number stays taken.
Lists know it by its length, which no manifest has."""
_OPENING = "opening"
_TRANSIENT = {408, 409, 429, 500, 502, 503, 504}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_SERVER = {
    "s3": "AWS_ENDPOINT_URL",
    "gs": "gcs_base_url in the service account's file",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ENDPOINT",
}
_REFUSED = (
    "{} accepts the condition 'only if there is no such object' and overwrites all the same; two writers would lose "
    "each other's versions there without a sign. Nothing was written; use a server that honours If-None-Match (AWS S3, "
    "Google Cloud Storage, Azure, MinIO, Ceph do)"
)


class CloudObjects:
    """See `concal.bank.store.objects.Objects`."""

    def __init__(self, address: str) -> None:
        self.address, self._reached = address.rstrip("/"), False
        self._scheme = self.address.split(":")[0].lower()
        try:
            from obstore import store as providers
        except ModuleNotFoundError:
            raise BankError(
                f"{address} is object storage, which needs more packages: pip install 'concal[cloud]'"
            ) from None
        options: dict[str, Any] = {"timeout": "60s", "connect_timeout": "4s"}
        options["allow_http"] = True  # asked in clear only where somebody wrote http:// for a server of their own
        retry: dict[str, Any] = {"max_retries": 2, "retry_timeout": timedelta(seconds=FIRST_CONTACT)}
        make: Any = providers.from_url  # its types differ by provider
        self._store = self._tried(_OPENING, lambda: make(self.address, client_options=options, retry_config=retry))
        self._reached = False  # nothing was asked yet

    @property
    def place(self) -> str:
        """The address."""
        return self.address

    @property
    def has_lock(self) -> bool:
        """Others may write at any time."""
        return False

    def prepare(self) -> None:
        """Refuse a place that has something else, cannot be written to, or overwrites where it should not."""
        import obstore

        names = [str(found["path"]) for found in self._tried("listing", lambda: obstore.list(self._store).collect())]
        other = [name for name in names if name.split("/")[0] not in FOLDERS]
        if other:
            raise BankError(f"{self.address} is not empty and not a bank ({first_few(other)}); choose another prefix")
        probe = f"work/probe-{random.SystemRandom().getrandbits(64):016x}"
        try:
            first, second = self._create(probe, b"first"), self._create(probe, b"second")
            if not first or second or self.read(probe) != b"first":
                raise BankError(_REFUSED.format(self.address))
        finally:
            self.delete([probe])

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Large reads go piece by piece, each tried again on its own; a pruned manifest is not there."""
        if size is None:
            data = self._whole(name)
            if data == FORGOTTEN:
                raise FileNotFoundError(2, "no such object", name)
            return data
        pieces, end = [], start + size
        while start < end:
            asked = min(PIECE, end - start)
            piece = self._range(name, start, asked)
            pieces.append(piece)
            start += asked
            if len(piece) < asked:
                break
        return b"".join(pieces)

    def _whole(self, name: str) -> bytes:
        return self._tried(f"reading {name}", lambda: bytes(self._store.get(name).bytes()))

    def _range(self, name: str, start: int, size: int) -> bytes:
        def get() -> bytes:
            try:
                return bytes(self._store.get_range(name, start=start, length=size))
            except Exception as error:
                if status_of(error)[0] == 416 or "StartTooLarge" in str(error):  # nothing there
                    return b""
                raise

        return self._tried(f"reading {name}", get)

    def files(self, folder: str) -> list[Listed]:
        """Without the manifests that were pruned."""
        import obstore

        found = self._tried(f"listing {folder}", lambda: obstore.list(self._store, prefix=folder).collect())
        files = [Listed(str(f["path"]), int(f["size"]), f["last_modified"].timestamp()) for f in found]
        if folder == "snapshots":
            files = [file for file in files if file.bytes != len(FORGOTTEN)]
        return sorted(files, key=lambda file: file.name)

    def create(self, name: str, data: bytes, scratch: Path) -> bool:
        """A conditional put; see the module's text for what may go wrong."""
        return self._create(name, data)

    def _create(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        def put() -> bool:
            try:
                self._store.put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                try:
                    return self._whole(name) == data
                except FileNotFoundError:
                    raise _Again from None  # two conditional writes met, and neither won
            return True

        return self._tried(f"writing {name}", put)

    def publish(self, folder: Path) -> None:
        """Upload its files; each appears whole or not at all."""
        for path in sorted(folder.iterdir()):
            self.put(f"data/{folder.name}/{path.name}", path)

    def put(self, name: str, content: Path | bytes) -> None:
        """See `Objects`."""
        self._tried(f"writing {name}", lambda: self._store.put(name, content))

    def delete(self, names: list[str]) -> None:
        """See `Objects`."""
        if not names:
            return
        doing = f"removing {first_few(names)}"
        try:
            self._tried(doing, lambda: self._store.delete(names))
        except FileNotFoundError:  # some providers stop at a name that is not there
            for name in names:
                with suppress(FileNotFoundError):
                    self._tried(doing, partial(self._store.delete, name))

    def forget(self, name: str) -> None:
        """The name stays, with a word in it: a writer who has slept since must not get the number."""
        self.put(name, FORGOTTEN)

    def _tried(self, doing: str, request: Callable[[], Answer]) -> Answer:
        """Do a request, again where that helps; what stays wrong becomes a `BankError`."""
        from obstore.exceptions import BaseError

        start, wait = time.monotonic(), 0.1
        while True:
            try:
                answer = request()
            except (BaseError, OSError, ValueError, _Again) as error:
                status, code = (409, "") if isinstance(error, _Again) else status_of(error)
                if isinstance(error, FileNotFoundError) and code not in ("NoSuchBucket", "ContainerNotFound"):
                    raise FileNotFoundError(2, "no such object", doing.split(" ")[-1]) from None
                patience = PATIENCE if self._reached or status in _TRANSIENT else FIRST_CONTACT
                again = status in _TRANSIENT or (status is None and _is_network(error))
                if not again or time.monotonic() - start > patience:
                    what = _explained(self._scheme, status, code, error, asked=doing != _OPENING)
                    raise BankError(f"{doing} at {self.address}: {what}") from None
            else:
                self._reached = True
                return answer
            time.sleep(wait * (0.5 + random.random()))
            wait = min(2.0 * wait, 5.0)


class _Again(Exception):
    """The server asks to be asked again."""


def status_of(error: BaseException) -> tuple[int | None, str]:
    """HTTP status and the storage's error code, as far as an error of obstore has them."""
    text = str(error)
    status, code = re.search(r"status code: (\d{3})", text), re.search(r"<Code>(\w{1,60})</Code>", text)
    return (int(status[1]) if status else None), (code[1] if code else "")


def _is_network(error: BaseException) -> bool:
    return bool(re.search(r"error sending request|HTTP error|timed? ?out|connection|body", str(error)[:2000], re.I))


def _explained(scheme: str, status: int | None, code: str, error: BaseException, *, asked: bool) -> str:
    """What is wrong and what to do, without a word of the server's text; `asked`: whether a server was."""
    said = f" (the storage answered {' '.join(filter(None, [str(status), code]))})" if status else ""
    kind = type(error).__name__
    if code in ("NoSuchBucket", "ContainerNotFound") or status == 404:
        return f"there is no such bucket{said}; make it with your provider's tools first, and look at the spelling"
    if status in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return f"access is refused{said}; check which credentials the environment has and what they may do here"
    if not asked or re.search(r"[Mm]issing|must be specified|token request|credential", str(error)[:300]):
        return (
            "the environment has no credentials for it, or none that can be read; set them as for your provider's own "
            f"tools, e.g. {_CREDENTIALS[scheme]}"
        )
    if status in _TRANSIENT:
        return f"the storage went on refusing{said}; run the same command again later"
    if status is None and _is_network(error):
        return (
            f"nobody answers there; check the network, the address and {_SERVER[scheme]}, and run the same command "
            "again"
        )
    return f"the storage refused{said}, {kind}; run the same command again, and report this if it stays"
