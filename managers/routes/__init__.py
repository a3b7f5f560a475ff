"""The routes of a manager, written once against `managers.api.Manager`.

`api_v1` is our own API, `daliuge` has DALiuGE's paths, `metrics` answers Prometheus.
"""
