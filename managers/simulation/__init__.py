"""Links over a simulated network, in one thread on virtual time. Only tests import this package."""
