"""Managers: node, data island, master and daemon, with the links between nodes, their REST routes and pages."""
