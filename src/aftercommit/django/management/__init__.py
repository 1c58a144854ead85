"""What Django looks for by name."""
