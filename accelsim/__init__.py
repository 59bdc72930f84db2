"""What a program costs on an accelerator. Imports no Django."""
