"""Node managers in this process, as in the tests of node managers."""

from tests.managers.node.conftest import make_cluster  # noqa: F401 - a fixture
