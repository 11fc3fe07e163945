"""Numbers and strings of a report in one compressed block, so that 20,000 items fit a small file."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

MISSING, WIDE_MISSING = -32768, -(2**31)
_FEW = 300  # distinct strings up to which a column is coded by its levels


class Block:
    """Arrays one after the other; `put` gives the reference by which the page finds them again."""

    def __init__(self, item_ids: Sequence[str] = ()) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._place = {item: k for k, item in enumerate(item_ids)}

    def _append(self, array: npt.NDArray[Any]) -> list[int]:
        """Bytes of equal weight together: the high ones of neighbouring numbers are alike and compress well."""
        planes = np.frombuffer(array.tobytes(), dtype=np.uint8).reshape(-1, array.itemsize).T
        return self._append_bytes(planes.tobytes())

    def _append_bytes(self, data: bytes) -> list[int]:
        start = self._size
        self._parts.append(data)
        self._size += len(data)
        return [start, len(data)]

    def numbers(self, values: npt.ArrayLike) -> dict[str, Any]:
        """Exact: float32, or int32 for whole numbers."""
        array = np.asarray(values)
        if array.dtype.kind in "iub":
            return {"t": "i32", "at": self._append(array.astype("<i4"))}
        return {"t": "f32", "at": self._append(array.astype("<f4"))}

    def places(self, values: npt.ArrayLike) -> dict[str, Any]:
        """Whole numbers that mostly go up by little, such as places of items: as differences, which compress well."""
        return {"t": "s32", "at": self._append(np.diff(np.asarray(values, dtype="<i4"), prepend=np.int32(0)))}

    def codes(self, values: npt.ArrayLike) -> dict[str, Any]:
        """Small whole numbers, 0..255."""
        return {"t": "u8", "at": self._append(np.asarray(values).astype(np.uint8))}

    def rounded(self, values: npt.ArrayLike, step: float = 1e-3) -> dict[str, Any]:
        """To the nearest multiple of `step`, NaN kept; two bytes each where that is enough, otherwise four."""
        array = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(array)
        largest = float(np.abs(array[finite]).max()) if finite.any() else 0.0
        small = largest / step < -MISSING
        if largest / step > -WIDE_MISSING:
            return self.numbers(array)
        whole = np.full(array.shape, MISSING if small else WIDE_MISSING, dtype="<i2" if small else "<i4")
        whole[finite] = np.round(array[finite] / step).astype(whole.dtype)
        return {"t": "r16" if small else "r32", "step": step, "at": self._append(whole)}

    def shares(self, values: npt.ArrayLike, parts: int = 255) -> dict[str, Any]:
        """Numbers in [0, 1] to one of `parts`, as differences along the last axis (smooth curves compress well)."""
        array = np.round(np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0) * parts).astype(np.int16)
        steps = np.diff(array, axis=-1, prepend=np.int16(0)).astype(np.uint8)  # modulo 256, undone by the page
        return {"t": "d8", "parts": parts, "at": self._append(steps)}

    def text(self, values: Sequence[str]) -> dict[str, Any]:
        """Strings."""
        return {"t": "text", "at": self._append_bytes(json.dumps(list(values), ensure_ascii=False).encode("utf-8"))}

    def frame(self, table: pl.DataFrame, *, exact: bool = True) -> dict[str, Any]:
        """A table by columns: item ids by their position in the bank, few strings by level, numbers as arrays."""
        return {"n": table.height, "columns": [self._column(table[name], exact) for name in table.columns]}

    def _column(self, column: pl.Series, exact: bool) -> dict[str, Any]:
        kind, name = column.dtype, column.name
        if kind == pl.Boolean:
            return {"name": name, "kind": "bool", **self.codes(column.cast(pl.UInt8).fill_null(2).to_numpy())}
        if kind.is_integer() and not column.null_count():
            return {"name": name, "kind": "int", **self.numbers(column.to_numpy())}
        if kind.is_numeric():
            values = column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
            whole = "int" if kind.is_integer() else "float"
            return {"name": name, "kind": whole, **(self.numbers(values) if exact else self.rounded(values))}
        words = [None if v is None else str(v) for v in column.to_list()]
        if self._place and all(w in self._place for w in words):
            return {"name": name, "kind": "item", **self.places([self._place[str(w)] for w in words])}
        levels = list(dict.fromkeys(words))
        if len(levels) <= _FEW:
            index = {w: k for k, w in enumerate(levels)}
            codes = np.array([index[w] for w in words], dtype=np.int64)
            packed = self.codes(codes) if len(levels) <= 256 else self.numbers(codes)
            return {"name": name, "kind": "level", "levels": levels, **packed}
        return {"name": name, "kind": "text", **self.text([w or "" for w in words])}

    def encoded(self) -> str:
        """The block, gzip-compressed, as base64."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 9, mtime=0)).decode("ascii")


def script_json(value: Any) -> str:
    r"""JSON that is safe inside a script element: no end tag, no comment, no NaN can be spelt with it.

    >>> script_json({"id": "</script><b>"})
    '{"id":"\\u003c/script\\u003e\\u003cb\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
