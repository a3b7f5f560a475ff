"""The routes of a manager, written once against `managers.api.Manager`: our own API, DALiuGE's, metrics."""
