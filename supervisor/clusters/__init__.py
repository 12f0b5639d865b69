"""Where jobs run: a talker and a pure parser per kind of cluster."""
