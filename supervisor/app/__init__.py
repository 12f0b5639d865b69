"""The shell: it looks, asks the pure rooms, writes down, and carries out. Only it knows the rooms and the clock."""
