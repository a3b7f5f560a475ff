"""The web pages of a manager: complete without JavaScript, updated live with it."""
