"""Fields of a node under the names that they have today, and with the class names of today."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from translator.formats.vocabulary import canonical_class, canonical_names, fold
from translator.logical import Field, NodeKind

__all__ = ["canonical_fields"]


def canonical_fields(
    fields: tuple[Field, ...], category: str, kind: NodeKind, switches: Mapping[str, bool]
) -> tuple[Field, ...]:
    """The fields of a node with canonical names for what the translator reads from them.

    Parameters
    ----------
    fields : tuple of Field
        As they stand in the file.
    category, kind : str, NodeKind
        What the node is; a name means something only on some kinds of nodes.
    switches : mapping of str to bool
        Obsolete flags of the node (``streaming``, ``precious``) under the names of the fields that replaced them.

    Returns
    -------
    tuple of Field
        Ports keep their names. A field that has the canonical name already stays, and an older one of the same
        meaning gives way to it unless only the older one has a value.
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
    """For each name that some field got by renaming, the place of the field that keeps it."""
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
