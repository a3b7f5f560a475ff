"""Records with a value in every field, to find the fields that are lost when answers of children are merged."""

from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


def filled(kind: type[Record], number: int, /, **values: Any) -> Record:
    """Return a record whose fields have values that are made of `number`, but for `values`."""
    types = get_type_hints(kind)
    return kind(**{name: _value(types[name], name, number) for name in kind.__struct_fields__} | values)


def fields_with_defaults(record: msgspec.Struct) -> set[str]:
    """Return the fields of a record that have their default."""
    fields = msgspec.structs.fields(record)
    return {field.name for field in fields if not field.required and getattr(record, field.name) == _default(field)}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _value(kind: Any, name: str, number: int) -> Any:
    arguments = [argument for argument in get_args(kind) if argument is not NoneType]
    if isinstance(kind, UnionType):
        return _value(arguments[0], name, number)
    if get_origin(kind) is tuple:
        return (_value(arguments[0], name, number),)
    if get_origin(kind) is dict:
        return {_value(arguments[0], name, number): _value(arguments[1], name, number)}
    if issubclass(kind, msgspec.Struct):
        return filled(kind, number)
    if kind is bytes:
        return number.to_bytes(4, "little")
    return f"{name} {number}" if kind is str else kind(number)
