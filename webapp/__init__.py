"""The web application: who may see what, and what is running."""

__version__ = "0.1.0"
