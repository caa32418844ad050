"""``cclp label``: from no labels at all to a classifier, by answering the best questions first."""
