"""Results made of item groups, as tables anyone can read: a row per item, a row per other array, and plain data.

``<key>_items.parquet`` has a row per item: id, group, and every per-item quantity (vectors and matrices as lists,
row by row). ``<key>_arrays.parquet`` has a row per array that belongs to a group or to the whole: group, field, shape,
values. ``<key>.json`` has names, models and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from concal.bank.store.folder import FolderReader, FolderWriter
from concal.errors import BankError
from concal.response import ResponseModel, make_model

Result = TypeVar("Result")
_Array = tuple[str, str, np.ndarray[Any, Any]]  # group, field, values
ROW_GROUP = 500
"""Items per row group."""


def encode_model(model: ResponseModel) -> dict[str, Any]:
    """A response model as plain data."""
    return {
        "name": model.name,
        "categories": model.n_categories if model.polytomous else None,
        "slopes": model.slopes,
        "steps": getattr(model, "steps", None),
        "parameters": list(model.parameters),
    }


def decode_model(content: Mapping[str, Any]) -> ResponseModel:
    """The response model of a stored group; an unknown one or one whose parameters changed is refused."""
    model = make_model(content["name"], content["categories"], content["slopes"], content["steps"])
    if list(model.parameters) != list(content["parameters"]):
        raise BankError(
            f"response model {content['name']!r} has parameters {list(model.parameters)} here, "
            f"but the bank was written with {content['parameters']}"
        )
    return model


def write_result(writer: FolderWriter, key: str, result: Any, *, skip: tuple[str, ...] = ()) -> None:
    """Write a dataclass with a mapping `groups` of group dataclasses; `skip` names fields stored elsewhere.

    Frames become files of their own, ``<key>_<field>.parquet``.
    """
    plain: dict[str, Any] = {}
    arrays: list[_Array] = []
    for item in fields(result):
        value = getattr(result, item.name)
        if item.name in (*skip, "groups"):
            continue
        if isinstance(value, pl.DataFrame):
            writer.frame(f"{key}_{item.name}", value)
        elif isinstance(value, np.ndarray):
            arrays.append(("", item.name, value))
        else:
            plain[item.name] = value
    groups = {name: _describe(name, group, arrays, skip) for name, group in result.groups.items()}
    writer.json(key, {"plain": plain, "groups": groups, "order": list(result.groups)})
    writer.tables(f"{key}_items", _item_tables(result.groups, groups), split=_list_columns(groups))
    writer.tables(f"{key}_arrays", [_array_table(arrays)])


def _describe(key: str, group: Any, arrays: list[_Array], skip: tuple[str, ...]) -> dict[str, Any]:
    """Plain fields of a group; its other arrays are appended to `arrays`."""
    plain: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    for item in fields(group):
        value = getattr(group, item.name)
        if item.name in (*skip, "item_ids"):
            continue
        if isinstance(value, ResponseModel):
            plain[item.name] = encode_model(value)
        elif isinstance(value, np.ndarray) and item.name in type(group).PER_ITEM:
            shapes[item.name] = [int(n) for n in value.shape[1:]]
        elif isinstance(value, np.ndarray):
            arrays.append((key, item.name, value))
        elif isinstance(value, Mapping):
            plain[item.name] = {str(k): float(v) for k, v in value.items()}
        else:
            plain[item.name] = list(value) if isinstance(value, tuple) else value
    return {"plain": plain, "shapes": shapes, "n_items": len(group.item_ids)}


def _list_columns(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return sorted({name for group in groups.values() for name, shape in group["shapes"].items() if shape})


def _item_tables(groups: Mapping[str, Any], described: Mapping[str, Mapping[str, Any]]) -> Iterator[pa.Table]:
    """One table per group (its own row group), all of one schema."""
    columns = sorted({name for group in described.values() for name in group["shapes"]})
    kinds = {name: _kind(groups, name) for name in columns}
    schema = pa.schema([("item_id", pa.string()), ("group", pa.string()), *kinds.items()])
    for key, group in groups.items():
        n = len(group.item_ids)
        data = [pa.array(group.item_ids, pa.string()), pa.array([key] * n, pa.string())]
        for name, kind in kinds.items():
            value = getattr(group, name, None)
            data.append(pa.nulls(n, kind) if value is None else _column(value, kind))
        yield pa.table(data, schema=schema)


def _kind(groups: Mapping[str, Any], name: str) -> pa.DataType:
    value = next(v for v in (getattr(g, name, None) for g in groups.values()) if v is not None)
    if value.dtype.kind in "UO":
        return pa.string()
    number = pa.int64() if value.dtype.kind in "iu" else pa.bool_() if value.dtype.kind == "b" else pa.float64()
    return pa.list_(number) if value.ndim > 1 else number


def _column(value: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(value.tolist() if pa.types.is_string(kind) else value, kind)
    width = int(np.prod(value.shape[1:], dtype=np.int64))
    offsets = np.arange(0, (value.shape[0] + 1) * width, width) if width else np.zeros(value.shape[0] + 1)
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(np.ascontiguousarray(value).reshape(-1), kind.value_type)
    )


def _array_table(arrays: list[_Array]) -> pa.Table:
    return pa.table(
        {
            "group": pa.array([a[0] for a in arrays], pa.string()),
            "field": pa.array([a[1] for a in arrays], pa.string()),
            "kind": pa.array(["i" if a[2].dtype.kind in "iu" else "f" for a in arrays], pa.string()),
            "shape": pa.array([list(a[2].shape) for a in arrays], pa.list_(pa.int64())),
            "values": pa.array([np.asarray(a[2], dtype=np.float64).ravel() for a in arrays], pa.list_(pa.float64())),
        }
    )


@dataclass(frozen=True)
class Layout:
    """What a result's plain data say: of the whole, and of every group by its name, in their order.

    Attributes
    ----------
    plain : dict of field -> value
    groups : dict of group -> dict of field -> value
        Response models as `encode_model` gives them.
    n_items : dict of group -> number of items
    """

    plain: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, Any]]
    n_items: Mapping[str, int]

    def parameters(self, group: str) -> list[str]:
        """Of a group's response model."""
        found: list[str] = self.groups[group]["model"]["parameters"]
        return found


def read_layout(reader: FolderReader, key: str) -> Layout:
    """Of what `write_result` wrote, without reading tables."""
    content = reader.json(key)
    groups = {name: content["groups"][name] for name in content["order"]}
    return Layout(
        content["plain"],
        {name: group["plain"] for name, group in groups.items()},
        {name: group["n_items"] for name, group in groups.items()},
    )


def read_result(
    reader: FolderReader,
    key: str,
    result: Callable[..., Result],
    group: type[Any],
    extra: Mapping[str, Any] | None = None,
) -> Result:
    """Read back what `write_result` wrote; `extra` gives the skipped fields of groups as {group: {field: value}}."""
    content = reader.json(key)
    table = reader.table(f"{key}_items")
    arrays = _arrays(reader, f"{key}_arrays")
    names = table.column("group").to_numpy(zero_copy_only=False)
    groups: dict[str, Any] = {}
    for name in content["order"]:
        described = content["groups"][name]
        rows = np.flatnonzero(names == name)
        piece = table.slice(int(rows[0]), len(rows)) if len(rows) else table.slice(0, 0)
        values = _plain_fields(described["plain"], group)
        values["item_ids"] = tuple(piece.column("item_id").to_pylist())
        for column, shape in described["shapes"].items():
            values[column] = _from_column(piece.column(column), shape)
        values |= arrays.get(name, {}) | dict((extra or {}).get(name, {}))
        groups[name] = group(**values)
    values = _plain_fields(content["plain"], result) | arrays.get("", {})
    for item in fields(result):  # type: ignore[arg-type]
        if f"{key}_{item.name}" in reader and item.name not in values and item.name != "groups":
            values[item.name] = reader.frame(f"{key}_{item.name}")
    return result(groups=groups, **values, **dict((extra or {}).get("", {})))


def _plain_fields(content: Mapping[str, Any], cls: Any) -> dict[str, Any]:
    """Lists back to tuples; fields this version does not have are refused, not dropped."""
    known = {f.name for f in fields(cls)}
    unknown = sorted(set(content) - known)
    if unknown:
        raise BankError(f"the bank has fields this concal does not know ({', '.join(unknown)}); upgrade concal")
    values: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict) and set(value) == {"name", "categories", "slopes", "steps", "parameters"}:
            values[name] = decode_model(value)
        elif isinstance(value, dict):
            values[name] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    return values


def _from_column(column: pa.ChunkedArray, shape: list[int]) -> np.ndarray[Any, Any]:
    n = len(column)
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not shape:
        return np.array(array.to_numpy(zero_copy_only=False))
    return np.array(array.flatten().to_numpy(zero_copy_only=False)).reshape(n, *shape)


def _arrays(reader: FolderReader, key: str) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    table = reader.table(key)
    found: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    for k in range(table.num_rows):
        group, field, kind, shape = (table.column(c)[k].as_py() for c in ("group", "field", "kind", "shape"))
        values = np.array(table.column("values")[k].values.to_numpy(zero_copy_only=False)).reshape(shape)
        found.setdefault(group, {})[field] = values.astype(np.int64) if kind == "i" else values
    return found
