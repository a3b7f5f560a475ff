"""Canonical names of fields, and of the classes in them."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from translator.formats.vocabulary import canonical_class, canonical_names, fold
from translator.logical import Field, NodeKind

__all__ = ["canonical_fields"]


def canonical_fields(
    fields: tuple[Field, ...], category: str, kind: NodeKind, switches: Mapping[str, bool]
) -> tuple[Field, ...]:
    """Return the fields of a node, with canonical names for those that the translator reads.

    Parameters
    ----------
    fields : tuple of Field
        The fields as in the file.
    category, kind : str, NodeKind
        Category and kind of the node: names depend on them.
    switches : mapping of str to bool
        Obsolete flags of the node (``streaming``, ``precious``), with the names of the fields that replaced them.

    Returns
    -------
    tuple of Field
        Ports keep their names. Of two fields with the same canonical name, the one with a value is kept, else the one
        that had this name in the file.
    """
    tables = tuple(canonical_names(category, kind))
    named = tuple(_renamed(field, tables) for field in fields)
    best = _best(fields, named)
    kept = tuple(field for place, field in enumerate(named) if best.get(field.name, place) == place or field.is_port)
    return (*kept, *_switched(kept, switches)) if kind is NodeKind.DATA else kept


def _renamed(field: Field, tables: tuple[Mapping[str, str], ...]) -> Field:
    if field.is_port:
        return field
    folded = fold(field.name)
    name = next((table[folded] for table in tables if folded in table), field.name)
    if name == "dropclass":
        value = canonical_class(field.value) if isinstance(field.value, str) else field.value
        default = canonical_class(field.default) if isinstance(field.default, str) else field.default
        return replace(field, name=name, value=value, default=default)
    return field if name == field.name else replace(field, name=name)


def _best(fields: tuple[Field, ...], named: tuple[Field, ...]) -> dict[str, int]:
    """Return the index of the field to keep for each name that a field got by renaming."""
    contested = {new.name for old, new in zip(fields, named, strict=True) if old.name != new.name}
    places: dict[str, list[int]] = {}
    for place, field in enumerate(named):
        if field.name in contested and not field.is_port:
            places.setdefault(field.name, []).append(place)

    def rank(place: int) -> tuple[bool, bool]:
        return named[place].effective in (None, ""), fields[place].name != named[place].name

    return {name: min(found, key=rank) for name, found in places.items()}


def _switched(fields: tuple[Field, ...], switches: Mapping[str, bool]) -> Iterator[Field]:
    names = {field.name for field in fields}
    for name, value in switches.items():
        if name not in names:
            yield Field(id=f"/{name}", name=name, value=value, type="Boolean")
