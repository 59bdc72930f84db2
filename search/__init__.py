"""How to look for something better. Imports no Django."""
