"""The routes of a manager, written once against `managers.api.Manager`.

`operation_handlers` makes our own API from `dropflow.rest.operations`, `daliuge` has DALiuGE's paths, `metrics` answers
Prometheus.
"""
