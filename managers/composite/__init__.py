"""Islands and masters: managers of managers. They keep no session of their own; they ask their children."""
