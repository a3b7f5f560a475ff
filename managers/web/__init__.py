"""The web pages of a manager, right without JavaScript and live with it."""
