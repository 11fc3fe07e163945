"""The page's data, read back the way the page's own script does."""

import base64
import gzip
import json
import re

import numpy as np


def read_page(text: str):
    content = json.loads(re.search(r'id="content">(.*?)</script>', text, re.S).group(1))
    block = gzip.decompress(base64.b64decode(re.search(r'id="block">(.*?)</script>', text, re.S).group(1)))
    return content, block


def unpack(block: bytes, ref: dict, row: int | None = None):
    start, length = ref["at"]
    raw = np.frombuffer(block[start : start + length], dtype=np.uint8)
    kinds = {"f32": "<f4", "i32": "<i4", "s32": "<i4", "r16": "<i2", "r32": "<i4"}
    if ref["t"] == "text":
        return json.loads(raw.tobytes())
    if ref["t"] == "u8":
        return raw
    if ref["t"] == "d8":
        return np.cumsum(raw.reshape(-1, row), axis=1, dtype=np.uint8) / ref["parts"]
    kind = np.dtype(kinds[ref["t"]])
    values = np.frombuffer(raw.reshape(kind.itemsize, -1).T.tobytes(), dtype=kind)
    if ref["t"] == "s32":
        return np.cumsum(values)
    if ref["t"][0] != "r":
        return values
    missing = np.iinfo(kind).min
    return np.where(values == missing, np.nan, values * ref["step"])


def frame(block: bytes, packed: dict, ids: list[str]) -> dict[str, list]:
    found = {}
    for column in packed["columns"]:
        values = unpack(block, column)
        if column["kind"] == "level":
            values = [column["levels"][v] for v in values]
        elif column["kind"] == "item":
            values = [ids[v] for v in values]
        found[column["name"]] = list(values)
    return found
