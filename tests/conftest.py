"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# Tests assert no times, and neither does Hypothesis: the machines of a continuous integration are slow when they like.
settings.register_profile("dropflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dropflow")
