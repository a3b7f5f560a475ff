"""The translator as a web service: the form that EAGLE posts, an upload, and a page that answers."""
