"""Files people asked for: there whole or not at all."""

from __future__ import annotations

import secrets
from pathlib import Path

from concal.bank.store.files import disk_errors, sync_folder, write_durably
from concal.errors import DataError


def check_folder(path: Path) -> None:
    """Refuse a file in a folder that is not there."""
    if not path.parent.is_dir():
        raise DataError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")


def write_whole(path: Path, data: bytes) -> None:
    """Write beside, flush and rename; an old file stays until then, and a failure leaves nothing behind."""
    check_folder(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with disk_errors(f"writing {path}"):
        try:
            write_durably(part, data)
            part.replace(path)
            sync_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)
