"""What the local pages share: who may ask, how much at once, and parts of a page."""
