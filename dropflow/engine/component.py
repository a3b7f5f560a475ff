"""The definition of a component: an application or data class, with its parameters and ports.

One definition serves three readers: the run-time parser of its parameters (`dropflow.engine.parameters`), its entry in
the palette (`palettes.from_components`) and its page in the reference.
"""

from typing import Any

import msgspec

from dropflow.graph.templates import Kind

__all__ = ["Component", "Parameter", "Port"]


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A typed parameter.

    Attributes
    ----------
    type : str
        EAGLE's type name: ``String``, ``Integer``, ``Float``, ``Boolean``, ``Select``, ``Json``, ``Object``.
    minimum, maximum : float or None
        Inclusive bounds for numbers.
    options : tuple of str
        What a ``Select`` may be.
    aliases : tuple of str
        Other names that graphs use for it.
    """

    name: str
    type: str = "String"
    default: Any = ""
    description: str = ""
    parameter_type: str = "ApplicationArgument"
    minimum: float | None = None
    maximum: float | None = None
    options: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port that the component offers in the palette; graphs may add others.

    `usage` is ``InputPort``, ``OutputPort`` or ``InputOutput``.
    """

    name: str
    usage: str
    type: str = "Object"
    encoding: str = "pickle"
    description: str = ""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """An application or data class, as users see it.

    Attributes
    ----------
    name : str
        Name in the palette, for example ``CopyApp``.
    kind : Kind
        Data or application.
    category : str
        EAGLE's category of a node made from it.
    dropclass : str
        The class name that graphs carry (DALiuGE's where there is one).
    aliases : tuple of str
        Older class names that mean the same.
    description : str
        One paragraph for the palette and the reference.
    construct : str
        ``Scatter`` or ``Gather`` when the palette also offers it as the application of such a construct.
    """

    name: str
    kind: Kind
    category: str
    dropclass: str
    description: str
    aliases: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    ports: tuple[Port, ...] = ()
    construct: str = ""
