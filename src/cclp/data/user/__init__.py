"""A user's own data: folders of images, arrays, tables."""
