"""Settings for all tests."""

import signal

from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background has them, and all processes that they start, ignore Ctrl-C. Tests that
# press it need it heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests assert no times, and neither does Hypothesis: the machines of a continuous integration are slow when they like.
settings.register_profile("dropflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dropflow")
