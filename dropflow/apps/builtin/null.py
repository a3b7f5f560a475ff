"""An application that only waits for its inputs."""

from dropflow.apps.api import App, Context
from dropflow.engine.component import Component
from dropflow.graph.templates import Kind

__all__ = ["NullBarrierApp"]


class NullBarrierApp(App):
    """Completes when its inputs have completed."""

    component = Component(
        name="NullBarrierApp",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="dlg.apps.simple.NullBarrierApp",
        aliases=("dlg.apps.app_base.BarrierAppDROP", "dlg.drop.BarrierAppDROP"),
        description="Does nothing; a point where branches of a graph meet. Its outputs complete empty.",
    )

    def run(self, context: Context) -> None:
        """Do nothing."""
