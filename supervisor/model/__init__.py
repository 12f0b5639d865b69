"""The nouns. Frozen, standard library only; every room knows them, they know no room."""
