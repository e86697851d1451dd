"""Records to JSON and back: enums by value, tuples as lists, unknown fields refused.

A file written by a newer release has fields or a schema this one does not know; refusing it by name
beats reading half of it.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import cattrs
import cattrs.v
from cattrs.preconf.json import make_converter

Record = TypeVar("Record")

_converter = make_converter(forbid_extra_keys=True)


_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
}


def _taken(value: Any, wanted: type) -> Any:
    """Take only what is of the type itself; cattrs would convert "300", 1.5 or "no"."""
    if type(value) is wanted:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    raise ValueError(f"must be {_WORDS[wanted]}, got {value!r:.40}")


for _kind in _WORDS:
    _converter.register_structure_hook(_kind, _taken)
_converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))


def _explain(error: BaseException, kind: type | None) -> str:
    """Keep the text of a record's own ValueError, which cattrs would reduce to "invalid value"."""
    text = str(error)
    return text if type(error) is ValueError and text else cattrs.v.format_exception(error, kind)


def encode(record: object) -> Any:
    """Turn a record into JSON values, every field included."""
    return _converter.unstructure(record)


def decode(kind: type[Record], values: Any) -> Record:
    """Build a record of a kind from JSON values.

    Raises:
        ValueError: If a field is missing, unknown or contradicts another; says which.
    """
    if is_dataclass(kind):
        _check_outside(kind, values)
    try:
        return _converter.structure(values, kind)
    except cattrs.BaseValidationError as error:
        causes = "; ".join(cattrs.transform_error(error, format_exception=_explain))
        raise ValueError(f"not a valid {kind.__name__}: {causes}") from error


def dumps(record: object) -> str:
    """Encode a record as one line of JSON with sorted keys.

    Raises:
        ValueError: If a number is not finite: JSON has no such number.
    """
    return json.dumps(encode(record), sort_keys=True, ensure_ascii=False, allow_nan=False)


def loads(kind: type[Record], text: str) -> Record:
    """Decode a record from JSON text.

    Raises:
        ValueError: If the text is not JSON or not such a record.
    """
    return decode(kind, json.loads(text, parse_constant=_refuse_constant))


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"a number must be finite, got {text}")


def _check_outside(kind: type, values: Any) -> None:
    """Name what is no object, or a newer schema before the fields it added, which would hide it."""
    if not isinstance(values, Mapping):
        raise ValueError(f"not a valid {kind.__name__}: expected an object, got {values!r:.40}")
    known = {f.name: f.default for f in fields(kind)}.get("schema")
    schema = values.get("schema")
    if isinstance(known, int) and isinstance(schema, int) and schema > known:
        raise ValueError(
            f"{kind.__name__} schema {schema!r} is newer than this release reads ({known}); "
            "upgrade encgraph"
        )
