"""Memory. SQLAlchemy Core; nothing else speaks SQL. ``store`` is the whole of it, ``light`` the quick way to read.

Nothing is imported here, so that the light path stays light.
"""
