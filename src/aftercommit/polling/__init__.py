"""What nobody delivered."""
