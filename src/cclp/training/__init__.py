"""What to run (recipe, config), the loop, and what a run leaves behind."""
