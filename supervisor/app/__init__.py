"""The shell: looks, asks the pure rooms, writes down, and carries out."""
