"""``dropflow log``."""

from dropflow.testing.fake_manager import FakeManager
from tests.cli.answers import Command


def test_the_log_is_printed_unchanged(ask: Command, manager: FakeManager) -> None:
    """Standard output has the bytes of the log and nothing else."""
    wanted = b"".join(manager.log("failed", "fan_a_0-0").chunks)

    assert ask("log", "failed", "fan_a_0-0").out == wanted
