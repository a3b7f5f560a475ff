"""The form of a logical graph with parameters: what a page or a program needs to ask for their values."""

import msgspec

from translator.fill_parameters import variables_of
from translator.logical import LogicalGraph
from translator.template import TemplateParameter, is_template, parameters_of

__all__ = ["TemplateForm", "form_of", "value_text"]


class TemplateForm(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters and configurations of a graph.

    Attributes
    ----------
    parameters : tuple of TemplateParameter
        The parameters; their values are those of the graph with the chosen configuration.
    configurations : tuple of str
        Names of the stored configurations, or their ids.
    configuration : str
        The chosen one; empty for none beside the active one.
    given : dict of str to str
        Values that were given, by parameter; they have priority.
    is_template : bool
        Whether a parameter has no value, so that the graph cannot be translated without one.
    """

    parameters: tuple[TemplateParameter, ...] = ()
    configurations: tuple[str, ...] = ()
    configuration: str = ""
    given: dict[str, str] = {}
    is_template: bool = False

    def shown(self, parameter: TemplateParameter) -> str:
        """Return the present value of a parameter as text; empty if it has none."""
        return self.given.get(parameter.name, value_text(parameter.value))


def form_of(graph: LogicalGraph, configuration: str, settings: tuple[str, ...]) -> TemplateForm | None:
    """Return the form of a graph as it was read; None if there is nothing to ask for.

    Parameters
    ----------
    graph : LogicalGraph
        The graph before its values are filled in.
    configuration : str
        Name or id of a stored configuration; empty for none.
    settings : tuple of str
        Settings, as texts ``NAME=VALUE``; those of single fields do not count.
    """
    parameters = parameters_of(graph)
    if not parameters and not graph.configurations:
        return None
    values = variables_of(graph, configuration or None, ())
    valued = tuple(
        msgspec.structs.replace(one, value=values.get(one.name, one.value)) if one.name in values else one
        for one in parameters
    )
    names = {one.name for one in parameters}
    pairs = [setting.partition("=")[::2] for setting in settings]
    given = {name.strip().removeprefix("global."): value.strip() for name, value in pairs}
    given = {name: value for name, value in given.items() if name in names}
    return TemplateForm(
        parameters=valued,
        configurations=tuple(one.name or one.id for one in graph.configurations),
        configuration=configuration,
        given=given,
        is_template=is_template(tuple(one for one in valued if one.name not in given)),
    )


def value_text(value: object) -> str:
    """Return a value as it is written in a form and in settings."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
