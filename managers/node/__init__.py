"""The node manager: sessions of the engine on one host, linked to those on others."""
