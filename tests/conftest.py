"""Settings for all tests."""

import signal

from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background has them, and all processes that they start, ignore Ctrl-C; nohup does
# the same to hang-ups. Tests that send them need them heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests assert no times, and neither does Hypothesis: the machines of a continuous integration are slow when they like.
settings.register_profile("dropflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dropflow")
