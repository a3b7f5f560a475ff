"""Managers: node, data island, master and daemon. Their rooms are built with the managers issue."""
