"""The verbs: pure decisions. What is known goes in, what follows comes out; the clock is handed in."""
