"""The decorator that describes an application class: what its `Component` would say, from the class itself."""

import inspect
from collections.abc import Callable, Iterable
from typing import TypeVar

from dropflow.apps.api import App
from dropflow.engine.component import Component, Parameter, Port
from dropflow.graph.templates import Kind

__all__ = ["component"]

AppType = TypeVar("AppType", bound=type[App])


def component(
    *,
    parameters: Iterable[Parameter] = (),
    ports: Iterable[Port] = (),
    name: str = "",
    description: str = "",
    category: str = "DALiuGEApp",
) -> Callable[[AppType], AppType]:
    """Describe an `App` class as a component of graphs and palettes.

    Parameters
    ----------
    parameters : iterable of Parameter
        The fields that the application reads. Their values are parsed and checked before anything runs.
    ports : iterable of Port
        The ports that a palette offers.
    name : str
        Name in the palette; by default the name of the class.
    description : str
        Text for the palette; by default the docstring of the class.
    category : str
        EAGLE's category of the node.

    Returns
    -------
    callable
        A decorator that sets the attribute `component` of the class. The class name for graphs (`dropclass`) is the
        dotted name of the class.

    Examples
    --------
    >>> @component(parameters=[Parameter(name="limit", type="Float", default=1.0)])
    ... class Threshold(App):
    ...     'Pass values on that reach the limit.'
    ...
    ...     def run(self, context): ...
    >>> Threshold.component.name, Threshold.component.description
    ('Threshold', 'Pass values on that reach the limit.')
    """

    def describe(application: AppType) -> AppType:
        application.component = Component(
            name=name or application.__name__,
            kind=Kind.APP,
            category=category,
            dropclass=f"{application.__module__}.{application.__qualname__}",
            description=" ".join((description or inspect.cleandoc(application.__doc__ or "")).split()),
            parameters=tuple(parameters),
            ports=tuple(ports),
        )
        return application

    return describe
