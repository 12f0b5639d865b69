"""The voice: pure text from what is stored. No clock, no terminal, no file: width, colour and time are handed in."""
